package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
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
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.predicate.Casts;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.RuntimeRowFilter;
import rewrite.jvm.shims.FileScans;
import rewrite.jvm.source.BoundRule;
import rewrite.jvm.source.FileSource;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.ScanSources;

/** A scan of files that Spark lists: Delta, Parquet. */
final class PhysicalFileScan extends PhysicalScan {
  private final FileSourceScanExec scan;
  private final IndexClient client;
  private final PruningFeedback feedback;

  PhysicalFileScan(FileSourceScanExec scan, IndexClient client, PruningFeedback feedback) {
    this.scan = scan;
    this.client = client;
    this.feedback = feedback;
  }

  public SparkPlan node() {
    return scan;
  }

  public ScanSource read() {
    return FileScans.isStream(scan) ? null : ScanSources.of(scan.relation(), client);
  }

  public boolean isPruned() {
    return scan.relation().location() instanceof PrunedFileIndex;
  }

  boolean isOfCommand() {
    return ScanSources.isOfCommand(scan.relation());
  }

  boolean isStreamed() {
    return FileScans.isStream(scan);
  }

  public boolean isIndexable() {
    return scan.relation().fileFormat() instanceof ParquetFileFormat
        && !name().contains("/_delta_log");
  }

  /** Delta counts the rows of a MERGE's source only if the table has rows for its join. */
  boolean filtersRows() {
    return super.filtersRows() && !isOfCommand();
  }

  public boolean hasFilters() {
    return true;
  }

  public List filters(List above) {
    List filters = ScalaInterop.asJava(scan.partitionFilters());
    filters.addAll(ScalaInterop.asJava(scan.dataFilters()));
    for (Iterator each = filters.iterator(); each.hasNext(); ) {
      // Spark's own, and ours that `keys` gives.
      if (Conditions.dynamic((Expression) each.next()) != null) each.remove();
    }
    return filters;
  }

  /** Those of partition columns: Spark takes them for its own, and would collect them whatever
      their size, and fail where that fails. */
  public List keys() {
    List out = new ArrayList();
    List filters = ScalaInterop.asJava(scan.partitionFilters());
    for (int i = 0; i < filters.size(); i++) {
      if (isOurs((Expression) filters.get(i))) {
        out.add(JoinKeySet.of((Expression) filters.get(i), feedback));
      }
    }
    return out;
  }

  /** Without adaptive execution one that reads its dimension again has lost its name, but Spark
      makes none of these unless told to. */
  private boolean isOurs(Expression filter) {
    JoinKeySet set = JoinKeySet.of(filter, feedback);
    return set != null
        && set.column() != null
        && (feedback.knows(set.expression().exprId())
            || !set.isBroadcast() && SkippingConf.reusesBroadcastsOnly());
  }

  public SparkPlan pruned(ScanPruning pruning, boolean waits) {
    HadoopFsRelation old = scan.relation();
    PrunedFileIndex location =
        new PrunedFileIndex(old.location(), (FileSource) pruning.read(), pruning);
    HadoopFsRelation relation = old.copy(
        location, old.partitionSchema(), old.dataSchema(), old.bucketSpec(), old.fileFormat(),
        old.options(), old.sparkSession());
    List filters = ScalaInterop.asJava(scan.dataFilters());
    boolean collects = waits && !pruning.isCollected();
    filters.addAll(collects ? awaited(pruning.keys()) : ranges(pruning.keys()));
    List partitionFilters = ScalaInterop.asJava(scan.partitionFilters());
    for (Iterator each = partitionFilters.iterator(); each.hasNext(); ) {
      if (isOurs((Expression) each.next())) each.remove();
    }
    FileSourceScanExec now =
        FileScans.copy(
            scan, relation, ScalaInterop.asScala(partitionFilters), ScalaInterop.asScala(filters));
    now.copyTagsFrom(scan);
    return now;
  }

  /** What Spark is to wait for before it lists the files. Only broadcasts: should reading a
      dimension again fail, the query must not. */
  private static List awaited(List keys) {
    List out = new ArrayList();
    for (int i = 0; i < keys.size(); i++) {
      JoinKeySet set = (JoinKeySet) keys.get(i);
      if (set.isBroadcast()) out.add(new DynamicPruningExpression(set.expression()));
    }
    return out;
  }

  /** What the reader is to skip row groups and pages by. Files have no partition columns: to the
      reader they would be null in each row. */
  private List ranges(List keys) {
    List out = new ArrayList();
    for (int i = 0; i < keys.size() && filtersRows(); i++) {
      JoinKeySet set = (JoinKeySet) keys.get(i);
      if (set.values() == null || isPartition(set.column())) continue;
      if (!BoundRule.of(BoundRule.PARQUET, set.column().dataType(), null).proves()) continue;
      Expression range = RuntimeRowFilter.reader(set.column(), set.values());
      if (range != null) out.add(range);
    }
    return out;
  }

  private boolean isPartition(Expression column) {
    List path = Conditions.path(Casts.bare(column));
    return path != null
        && scan.relation().partitionSchema().getFieldIndex((String) path.get(0)).isDefined();
  }

  public Map count() {
    PrunedFileIndex location = (PrunedFileIndex) scan.relation().location();
    return location.count(scan.partitionFilters(), scan.dataFilters());
  }

  public Object opened() {
    return isRunAgain() ? Long.valueOf(FileScans.countFiles(scan)) : metric("numFiles");
  }

  public Object openedBytes() {
    return isRunAgain() ? Long.valueOf(FileScans.countBytes(scan)) : metric("filesSize");
  }

  /** Whether rows came from files that Spark does not count: those of a plan it counts in its first
      run, and sets all counts back before the next. */
  private boolean isRunAgain() {
    Object files = metric("numFiles");
    Object rows = metric("numOutputRows");
    return files != null && ((Long) files).longValue() == 0
        && rows != null && ((Long) rows).longValue() > 0;
  }

  private Object metric(String name) {
    scala.Option found = scan.metrics().get(name);
    return found.isDefined() ? ((AccumulatorV2) found.get()).value() : null;
  }

  public Map known() {
    return ((PrunedFileIndex) scan.relation().location()).known();
  }

  public Object source() {
    FileIndex location = scan.relation().location();
    return isPruned() ? ((PrunedFileIndex) location).inner() : location;
  }

  public String name() {
    if (scan.tableIdentifier().isDefined()) {
      return scan.tableIdentifier().get().unquotedString();
    }
    List roots = ScalaInterop.asJava(scan.relation().location().rootPaths());
    return roots.isEmpty() ? scan.relation() + " without a path" : roots.get(0).toString();
  }
}
