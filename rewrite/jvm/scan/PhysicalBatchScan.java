package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.stream.Collectors;
import org.apache.spark.Partition;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.execution.InSubqueryExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SubqueryExec;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.FileScan;
import org.apache.spark.util.AccumulatorV2;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.keys.PruningRegistry;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.shims.BatchScans;
import rewrite.jvm.shims.Nodes;
import rewrite.jvm.source.ConnectorSource;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.ScanSources;
import rewrite.jvm.source.TableStatistics;

/** A scan of a connector: Iceberg. The keys of joins are among its runtime filters. The node is the
    BatchScanExec, or the native scan of Comet that lists its files with it. */
final class PhysicalBatchScan extends PhysicalScan {
  private final SparkPlan node;
  private final BatchScanExec scan;
  private final PruningRegistry registry;
  private final TableStatistics statistics;
  private Map<String, Long> opened;

  PhysicalBatchScan(
      SparkPlan node, BatchScanExec scan, PruningRegistry registry, TableStatistics statistics) {
    this.node = node;
    this.scan = scan;
    this.registry = registry;
    this.statistics = statistics;
  }

  @Override public SparkPlan node() {
    return node;
  }

  /** Comet's reader could drop rows by conditions that Iceberg's skips row groups by, and a filter
      of Spark would interrupt its native plan. */
  @Override boolean filtersRows() {
    return node == scan && super.filtersRows();
  }

  @Override public ScanSource read() {
    return ScanSources.of(scan.scan(), scan.output());
  }

  @Override ScanPruning pruning() {
    return scan.scan() instanceof PrunedBatchScan pruned ? pruned.pruning() : null;
  }

  @Override boolean isOfCommand() {
    return ScanSources.isOfCommand(scan.table());
  }

  @Override boolean isOfStream() {
    return false; // streams have another node
  }

  @Override public boolean isIndexable() {
    return !(scan.scan() instanceof FileScan);
  }

  @Override boolean hasFilters() {
    return false;
  }

  @Override public List<Expression> filters(List<Expression> above) {
    return new ArrayList<>(above);
  }

  /** Returns the keys that an index, or the table, can be looked up by. A filter that Spark has
      dropped has no column, and may have been Spark's own. */
  @Override List<JoinKeySet> keys() {
    Set<String> partition = partitionColumns();
    List<JoinKeySet> out = new ArrayList<>();
    for (Expression filter : runtimeFilters()) {
      JoinKeySet set = JoinKeySet.of(filter, registry);
      if (isSparks(set, partition)) continue;
      if (set.column() == null ? partition.isEmpty() : isUsable(set)) out.add(set);
    }
    return out;
  }

  /** Returns the runtime filters by which the connector prunes partitions. */
  private List<Expression> sparksFilters() {
    Set<String> partition = partitionColumns();
    List<Expression> filters = runtimeFilters();
    filters.removeIf(filter -> !isSparks(JoinKeySet.of(filter, registry), partition));
    return filters;
  }

  private List<Expression> runtimeFilters() {
    return ScalaInterop.asJava(scan.runtimeFilters());
  }

  /** Whether Spark created a filter, for partitions; null stands for one without keys. Without
      adaptive execution, a filter that reads its dimension again has another id, but Spark creates
      such filters only if told to. */
  private boolean isSparks(JoinKeySet set, Set<String> partition) {
    return set == null
        || set.column() != null
            && partition.contains(root(set).name())
            && !set.source().isRegistered()
            && (set.isBroadcast() || !isUsable(set));
  }

  /** Whether an index, or the table, can be looked up by some keys. */
  private boolean isUsable(JoinKeySet set) {
    return statistics.know(read(), set.column())
        || statistics.isIndexed(read(), Inversion.column(set.column()), Integer.MAX_VALUE)
        || statistics.isIndexed(read(), set.joinExpression());
  }

  private Set<String> partitionColumns() {
    return scan.runtimeFilters().isEmpty()
        ? Set.of()
        : Arrays.stream(((SupportsRuntimeV2Filtering) scan.scan()).filterAttributes())
            .map(column -> column.fieldNames()[0])
            .collect(Collectors.toSet());
  }

  private static Attribute root(JoinKeySet set) {
    return (Attribute) set.column().references().head();
  }

  @Override SparkPlan prune(ScanPruning pruning, boolean waits) {
    List<Expression> filters = sparksFilters();
    Map<String, JoinKeySet> awaited = new HashMap<>();
    if (waits && !pruning.isCollected()) {
      for (JoinKeySet set : pruning.keys()) {
        if (!set.isBroadcast()) continue;
        Attribute column = rename(root(set)).withDataType(set.expression().child().dataType());
        awaited.put(column.name(), set);
        filters.add(new DynamicPruningExpression(onColumn(set, column)));
      }
    }
    if (waits && awaited.isEmpty()) {
      Attribute column = rename(scan.output().head());
      awaited.put(column.name(), null);
      filters.add(new DynamicPruningExpression(createEmptyFilter(column)));
    }
    PrunedBatchScan other = new PrunedBatchScan(
        (ConnectorSource) pruning.read(), pruning, waits ? allPartitions() : null,
        BatchScans.isGrouped(scan), filtersRows(), awaited);
    BatchScanExec copy = BatchScans.copy(scan, other, ScalaInterop.asScala(filters));
    copy.copyTagsFrom(scan);
    return node == scan ? copy : CometNodes.replace(node, copy);
  }

  /** Gives a column a unique name: Spark passes only the name along with the values. */
  private static Attribute rename(Attribute column) {
    return column.withName("skipping_" + UUID.randomUUID().toString().replace('-', '_'));
  }

  /** Spark passes on the values for a bare column only, in their own type. */
  private static Expression onColumn(JoinKeySet set, Attribute column) {
    return set.expression().withNewChildren(ScalaInterop.asScala(List.of(column)));
  }

  /** Returns a runtime filter that collects nothing: with one, Spark lists the files late. */
  private static Expression createEmptyFilter(Attribute column) {
    SparkPlan rows =
        Nodes.scan(
            ScalaInterop.asScala(List.of(column)),
            ScalaInterop.asScala(List.<InternalRow>of()));
    return new InSubqueryExec(
        column, new SubqueryExec("skipping", rows, scala.Option.empty()),
        NamedExpression$.MODULE$.newExprId(), false, null, null);
  }

  private InputPartition[] allPartitions() {
    return ScalaInterop.asJava(scan.inputPartitions()).toArray(InputPartition[]::new);
  }

  @Override public Map<String, Object> count() throws Exception {
    return ((PrunedBatchScan) scan.scan()).count();
  }

  @Override public Number countOpened() throws Exception {
    Map<String, Long> files = findOpenedFiles();
    return files == null ? null : files.size();
  }

  @Override public Number sumOpenedBytes() throws Exception {
    Map<String, Long> files = findOpenedFiles();
    return files == null ? null : files.values().stream().mapToLong(Long::longValue).sum();
  }

  /** Returns the files of the partitions that ran, with their bytes: Iceberg's own metric counts
      planned files. */
  private Map<String, Long> findOpenedFiles() throws Exception {
    if (opened != null) return opened;
    boolean isNative = node != scan;
    Number splits = metric(isNative ? "num_splits" : "numSplits");
    Number rows = metric(isNative ? "output_rows" : "numOutputRows");
    if (splits == null || rows == null) return null;
    Map<String, Long> files = new HashMap<>();
    // Nothing ran yet, or nothing remained. Spark counts splits in a plan's first run only.
    if (splits.longValue() == 0 && rows.longValue() == 0) return files;
    for (Partition partition : scan.inputRDD().partitions()) {
      scala.collection.Iterable<InputPartition> inputs = BatchScans.inputs(partition);
      if (inputs == null) continue;
      for (InputPartition input : ScalaInterop.asJava(inputs)) {
        ScanSources.addFiles(input, files);
      }
    }
    opened = files;
    return files;
  }

  private Number metric(String name) {
    AccumulatorV2<?, ?> metric = ScalaInterop.orNull(node.metrics().get(name));
    return metric == null ? null : (Number) metric.value();
  }

  @Override public Object source() {
    return scan.scan() instanceof PrunedBatchScan pruned ? pruned.read() : read();
  }

  @Override public String name() {
    return scan.table().name();
  }
}
