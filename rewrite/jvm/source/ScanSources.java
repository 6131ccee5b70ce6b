package rewrite.jvm.source;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.FileScan;
import org.apache.spark.unsafe.Platform;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.UnmatchedClauses;

/** Finds the read of a table behind a node of a plan: files that Spark reads, or a connector. */
public final class ScanSources {
  private static final TreeNodeTag<SnapshotFiles> TAG = new TreeNodeTag<>("rewrite.source");
  private static final String RECURSION = "UnionLoop"; // Spark 3.5 has no such class

  /** The files of a snapshot, which are many. */
  private record SnapshotFiles(HadoopFsRelation relation, FileSource source) {}

  private ScanSources() {}

  public static boolean isScan(LogicalPlan plan) {
    return plan instanceof LogicalRelation || plan instanceof DataSourceV2ScanRelation;
  }

  /** Whether a node is a recursive query. Spark plans its parts again for each step, as plans of
      their own. */
  public static boolean isRecursion(LogicalPlan plan) {
    return plan.nodeName().equals(RECURSION);
  }

  /** Whether a leaf of a plan is a table that a command changes. */
  public static boolean isOfCommand(LogicalPlan leaf) {
    return leaf instanceof DataSourceV2ScanRelation scan
        ? isOfCommand(scan.relation().table())
        : findsFilesFirst(leaf);
  }

  /** The same of files that Spark reads. */
  public static boolean isOfCommand(HadoopFsRelation relation) {
    return TableFormats.of(relation.location()).isOfCommand(relation.location());
  }

  /** The same of a connector's table. */
  public static boolean isOfCommand(Table table) {
    return table instanceof RowLevelOperationTable;
  }

  /** Whether it is one that has found its files before it reads them, as Delta's do. */
  public static boolean findsFilesFirst(LogicalPlan leaf) {
    HadoopFsRelation relation = relation(leaf);
    return relation != null && isOfCommand(relation);
  }

  /** Returns the clauses of a MERGE that change rows of its table without a match in the source; null
      for other plans. */
  public static UnmatchedClauses unmatchedClauses(LogicalPlan command) {
    return TableFormats.unmatchedClauses(command);
  }

  /** Whether a leaf of a plan gives the same rows whenever it is read: a snapshot. */
  public static boolean isSnapshot(LogicalPlan leaf) {
    if (leaf instanceof DataSourceV2ScanRelation scan) {
      Scan own = ReportedScan.restore(scan.scan());
      return TableFormats.of(own).isSnapshot(own);
    }
    HadoopFsRelation relation = relation(leaf);
    return relation != null && TableFormats.of(relation.location()).isSnapshot(relation.location());
  }

  /** Whether it reads files that were listed once. Spark lists them again when the session writes to
      them, and others may replace them. */
  public static boolean isListed(LogicalPlan leaf) {
    if (leaf instanceof DataSourceV2ScanRelation scan) return scan.scan() instanceof FileScan;
    HadoopFsRelation relation = relation(leaf);
    return relation != null && relation.location() instanceof PartitioningAwareFileIndex;
  }

  /** Whether a leaf of a plan has taken conditions into itself, as Iceberg does with those that
      hold for whole partitions or for none of their rows. */
  public static boolean hasConditions(LogicalPlan leaf) {
    if (!(leaf instanceof DataSourceV2ScanRelation relation)) return false;
    Scan own = ReportedScan.restore(relation.scan());
    return TableFormats.of(own).hasConditions(own);
  }

  /** Returns the files behind a leaf of a plan; null if it reads none. */
  private static HadoopFsRelation relation(LogicalPlan leaf) {
    return leaf instanceof LogicalRelation logical
            && logical.relation() instanceof HadoopFsRelation relation
        ? relation
        : null;
  }

  /** Whether files that Spark reads are those of a stream's micro-batch, and may be pruned. */
  public static boolean isOfStream(HadoopFsRelation relation) {
    return TableFormats.of(relation.location()).isOfStream(relation.location());
  }

  /** Whether a connector's stream is one whose micro-batches may be pruned. */
  public static boolean isOfStream(MicroBatchStream stream) {
    return TableFormats.of(stream).isFormat(stream);
  }

  /** Returns the read of a micro-batch that a connector's stream has planned; null where it is not
      one that may be pruned. */
  public static ConnectorSource of(
      MicroBatchStream stream, Scan scan, List<InputPartition> batch) {
    return TableFormats.of(stream).open(scan, batch);
  }

  /** Returns the read behind a leaf of a plan; null where it is not one that may be pruned, such as
      the stream of most formats. */
  public static ScanSource of(LogicalPlan leaf, IndexClient client) {
    HadoopFsRelation relation = relation(leaf);
    if (leaf.isStreaming() && (relation == null || !isOfStream(relation))) return null;
    if (leaf instanceof DataSourceV2ScanRelation scan) return of(scan.scan(), scan.output());
    if (relation == null) return null;
    if (!isSnapshot(leaf)) return of(relation, client);
    SnapshotFiles known = ScalaInterop.orNull(leaf.getTagValue(TAG));
    if (known != null && known.relation == relation) return known.source;
    FileSource source = of(relation, client);
    leaf.setTagValue(TAG, new SnapshotFiles(relation, source));
    return source;
  }

  /** The same for files that Spark reads. */
  public static FileSource of(HadoopFsRelation relation, IndexClient client) {
    TableFormat format = TableFormats.of(relation.location());
    return format.isFormat(relation.location())
        ? format.open(relation)
        : ParquetSource.of(relation, client);
  }

  /** The same for a connector's scan with these columns. */
  public static ConnectorSource of(Scan scan, scala.collection.Iterable<?> output) {
    try {
      Scan own = ReportedScan.restore(scan);
      return TableFormats.of(own).open(own, output);
    } catch (Throwable failure) {
      Failures.passOn(failure);
      return null;
    }
  }

  /** Adds the files in a partition that a connector planned: the bytes by location. */
  public static void addFiles(InputPartition partition, Map<String, Long> files) {
    try {
      TableFormats.of(partition).addFiles(partition, files);
    } catch (Exception failure) {
      Platform.throwException(failure);
    }
  }
}
