package rewrite.jvm;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.util.AccumulatorV2;

/** A scan of files that Spark lists: Delta, Parquet. */
final class PlannedFileScan extends PlannedScan {
  private final FileSourceScanExec scan;

  PlannedFileScan(FileSourceScanExec scan, Skipping skipping) {
    super(skipping);
    this.scan = scan;
  }

  public SparkPlan node() {
    return scan;
  }

  public IndexedScan read() {
    return scan.stream().isDefined() ? null : FileScan.of(scan.relation(), skipping);
  }

  public boolean isPruned() {
    return scan.relation().location() instanceof PrunedFileIndex;
  }

  public boolean hasFilters() {
    return true;
  }

  public List filters(List above) {
    List filters = Scala.list(scan.partitionFilters());
    filters.addAll(Scala.list(scan.dataFilters()));
    for (Iterator each = filters.iterator(); each.hasNext(); ) {
      if (each.next() instanceof DynamicPruningExpression) each.remove(); // Spark's own
    }
    return filters;
  }

  public SparkPlan pruned(Pruning pruning, boolean waits) {
    HadoopFsRelation old = scan.relation();
    PrunedFileIndex location =
        new PrunedFileIndex(old.location(), (FileScan) pruning.read(), pruning);
    HadoopFsRelation relation = old.copy(
        location, old.partitionSchema(), old.dataSchema(), old.bucketSpec(), old.fileFormat(),
        old.options(), old.sparkSession());
    List filters = Scala.list(scan.dataFilters());
    filters.addAll(waits ? awaited(pruning.keys()) : ranges(pruning.keys()));
    FileSourceScanExec now = scan.copy(
        relation, scan.stream(), scan.output(), scan.requiredSchema(), scan.partitionFilters(),
        scan.optionalBucketSet(), scan.optionalNumCoalescedBuckets(), Scala.seq(filters),
        scan.tableIdentifier(), scan.disableBucketedScan());
    now.copyTagsFrom(scan);
    return now;
  }

  /** What Spark is to wait for before it lists the files. Only broadcasts: should reading a
      dimension again fail, the query must not. */
  private static List awaited(List keys) {
    List out = new ArrayList();
    for (int i = 0; i < keys.size(); i++) {
      KeySet set = (KeySet) keys.get(i);
      if (set.isBroadcast()) out.add(new DynamicPruningExpression(set.expression()));
    }
    return out;
  }

  /** What the reader is to skip row groups and pages by. */
  private List ranges(List keys) {
    List out = new ArrayList();
    for (int i = 0; i < keys.size() && skipping.filtersRows(); i++) {
      KeySet set = (KeySet) keys.get(i);
      Expression range =
          set.values() == null ? null : RowFilter.reader(set.column(), set.values());
      if (range != null) out.add(range);
    }
    return out;
  }

  public Map count() {
    PrunedFileIndex location = (PrunedFileIndex) scan.relation().location();
    return location.count(scan.partitionFilters(), scan.dataFilters());
  }

  public Object opened() {
    return metric("numFiles");
  }

  public Object openedBytes() {
    return metric("filesSize");
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
    return scan.tableIdentifier().isDefined()
        ? ((TableIdentifier) scan.tableIdentifier().get()).unquotedString()
        : scan.relation().location().rootPaths().apply(0).toString();
  }
}
