package rewrite.jvm.scan;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.util.AccumulatorV2;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.keys.PruningRegistry;
import rewrite.jvm.predicate.Casts;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.RuntimeRowFilter;
import rewrite.jvm.predicate.ScalarSubqueries;
import rewrite.jvm.predicate.StaticKeys;
import rewrite.jvm.shims.FileScans;
import rewrite.jvm.shims.Nodes;
import rewrite.jvm.source.BoundRule;
import rewrite.jvm.source.FileSource;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.ScanSources;

/** A scan of files that Spark lists: Delta, Parquet. */
final class PhysicalFileScan extends PhysicalScan {
  private final FileSourceScanExec scan;
  private final IndexClient client;
  private final PruningRegistry registry;

  PhysicalFileScan(FileSourceScanExec scan, IndexClient client, PruningRegistry registry) {
    this.scan = scan;
    this.client = client;
    this.registry = registry;
  }

  @Override public SparkPlan node() {
    return scan;
  }

  @Override public ScanSource read() {
    return isOfStream() && !ScanSources.isOfStream(scan.relation())
        ? null
        : ScanSources.of(scan.relation(), client);
  }

  @Override ScanPruning pruning() {
    return location() instanceof PrunedFileIndex pruned ? pruned.pruning() : null;
  }

  private FileIndex location() {
    return scan.relation().location();
  }

  @Override boolean isOfCommand() {
    return ScanSources.isOfCommand(scan.relation());
  }

  @Override boolean isOfStream() {
    return FileScans.isStream(scan) || ScanSources.isOfStream(scan.relation());
  }

  @Override public boolean isIndexable() {
    return scan.relation().fileFormat() instanceof ParquetFileFormat
        && !name().contains("/_delta_log");
  }

  /** Delta counts the rows of a MERGE's source only if the table has rows for its join. */
  @Override boolean filtersRows() {
    return super.filtersRows() && !isOfCommand();
  }

  @Override boolean hasFilters() {
    return true;
  }

  @Override public List<Expression> filters(List<Expression> above) {
    List<Expression> filters = partitionFilters();
    filters.addAll(dataFilters());
    filters.removeIf(each -> Conditions.dynamic(each) != null); // Spark's, and those of `keys`
    // Spark 3.5 keeps conditions with a subquery out of the scan.
    if (above != null && ScalarSubqueries.of(filters).isEmpty()) {
      filters.addAll(ScalarSubqueries.of(above));
    }
    return filters;
  }

  private List<Expression> partitionFilters() {
    return ScalaInterop.asJava(scan.partitionFilters());
  }

  private List<Expression> dataFilters() {
    return ScalaInterop.asJava(scan.dataFilters());
  }

  /** Returns the keys of partition columns: Spark takes their filters for its own, would collect
      the keys whatever their size, and would fail if that fails. */
  @Override List<JoinKeySet> keys() {
    return partitionFilters().stream()
        .filter(this::isOurs)
        .map(filter -> JoinKeySet.of(filter, registry))
        .toList();
  }

  /** Whether a filter is from JoinPruningRule. Without adaptive execution, a filter that reads its
      dimension again has another id, but Spark creates such filters only if told to, and none of
      tuples. */
  private boolean isOurs(Expression filter) {
    JoinKeySet set = JoinKeySet.of(filter, registry);
    if (set == null) return false;
    return set.source().isRegistered() || Conditions.isAside(filter)
        || set.column() != null && !set.isBroadcast() && SkippingConf.reusesBroadcastsOnly();
  }

  @Override SparkPlan prune(ScanPruning pruning, boolean waits) {
    HadoopFsRelation old = scan.relation();
    PrunedFileIndex location =
        new PrunedFileIndex(old.location(), (FileSource) pruning.read(), pruning);
    HadoopFsRelation relation = old.copy(
        location, old.partitionSchema(), old.dataSchema(), old.bucketSpec(), old.fileFormat(),
        old.options(), old.sparkSession());
    List<Expression> filters = dataFilters();
    filters.removeIf(StaticKeys::isOne);
    boolean collects = waits && !pruning.isCollected();
    filters.addAll(collects ? createAwaitedFilters(pruning.keys()) : createRanges(pruning.keys()));
    List<Expression> partitionFilters = partitionFilters();
    partitionFilters.removeIf(each -> isOurs(each) || StaticKeys.isOne(each));
    FileSourceScanExec copy =
        Nodes.copy(
            scan, relation, ScalaInterop.asScala(partitionFilters), ScalaInterop.asScala(filters));
    copy.copyTagsFrom(scan);
    return copy;
  }

  /** Returns filters that Spark computes before it lists the files. They have broadcasts only: if
      reading a dimension again fails, the query must not. */
  private static List<Expression> createAwaitedFilters(List<JoinKeySet> keys) {
    return keys.stream()
        .filter(JoinKeySet::isBroadcast)
        .<Expression>map(set -> new DynamicPruningExpression(set.expression()))
        .toList();
  }

  /** Returns conditions by which the reader skips row groups and pages. Files have no partition
      columns: the reader would see null in each row. */
  private List<Expression> createRanges(List<JoinKeySet> keys) {
    if (!filtersRows()) return List.of();
    return keys.stream()
        .filter(set -> set.values() != null && !isPartition(set.column()))
        .filter(set -> BoundRule.of(BoundRule.PARQUET, set.column().dataType(), null).proves())
        .map(set -> RuntimeRowFilter.reader(set.column(), set.values()))
        .filter(Objects::nonNull)
        .toList();
  }

  private boolean isPartition(Expression column) {
    List<String> path = Conditions.path(Casts.bare(column));
    return path != null && scan.relation().partitionSchema().getFieldIndex(path.get(0)).isDefined();
  }

  @Override public Map<String, Object> count() {
    return ((PrunedFileIndex) location()).count(scan.partitionFilters(), scan.dataFilters());
  }

  @Override public Number countOpened() {
    return isRunAgain() ? FileScans.countFiles(scan) : metric("numFiles");
  }

  @Override public Number sumOpenedBytes() {
    return isRunAgain() ? FileScans.countBytes(scan) : metric("filesSize");
  }

  /** Whether rows came from files that Spark does not count: it counts them only in the first run
      of a plan, and resets all counts before the next one. */
  private boolean isRunAgain() {
    Number files = metric("numFiles");
    Number rows = metric("numOutputRows");
    return files != null && files.longValue() == 0 && rows != null && rows.longValue() > 0;
  }

  private Number metric(String name) {
    AccumulatorV2<?, ?> metric = ScalaInterop.orNull(scan.metrics().get(name));
    return metric == null ? null : (Number) metric.value();
  }

  @Override public Object source() {
    return location() instanceof PrunedFileIndex pruned ? pruned.inner() : location();
  }

  @Override public String name() {
    if (scan.tableIdentifier().isDefined()) {
      return scan.tableIdentifier().get().unquotedString();
    }
    List<Path> roots = ScalaInterop.asJava(location().rootPaths());
    return roots.isEmpty() ? scan.relation() + " without a path" : roots.get(0).toString();
  }
}
