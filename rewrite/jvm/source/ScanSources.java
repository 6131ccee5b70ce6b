package rewrite.jvm.source;

import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.FileScan;
import org.apache.spark.unsafe.Platform;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;

/** Finds the read of a table behind what plans have for it: files of Spark's, or a connector. */
public final class ScanSources {
  private ScanSources() {}

  /** Whether a plan reads a table. */
  public static boolean isScan(LogicalPlan plan) {
    return plan instanceof LogicalRelation || plan instanceof DataSourceV2ScanRelation;
  }

  /** Whether a leaf of a plan is a table that a command changes. */
  public static boolean isOfCommand(LogicalPlan leaf) {
    if (leaf instanceof DataSourceV2ScanRelation) {
      return isOfCommand(((DataSourceV2ScanRelation) leaf).relation().table());
    }
    if (!(leaf instanceof LogicalRelation)) return false;
    Object relation = ((LogicalRelation) leaf).relation();
    return relation instanceof HadoopFsRelation && isOfCommand((HadoopFsRelation) relation);
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
    return leaf instanceof LogicalRelation && isOfCommand(leaf);
  }

  /** Whether a leaf of a plan gives the same rows whenever it is read: a snapshot. */
  public static boolean isSnapshot(LogicalPlan leaf) {
    if (leaf instanceof LogicalRelation) {
      Object relation = ((LogicalRelation) leaf).relation();
      if (!(relation instanceof HadoopFsRelation)) return false;
      FileIndex index = ((HadoopFsRelation) relation).location();
      return TableFormats.of(index).isSnapshot(index);
    }
    if (!(leaf instanceof DataSourceV2ScanRelation)) return false;
    Scan scan = ((DataSourceV2ScanRelation) leaf).scan();
    return TableFormats.of(scan).isSnapshot(scan);
  }

  /** Whether it reads files that were listed once. Spark lists them anew when the session writes to
      them, and others may replace them. */
  public static boolean isListed(LogicalPlan leaf) {
    if (leaf instanceof LogicalRelation) {
      Object relation = ((LogicalRelation) leaf).relation();
      return relation instanceof HadoopFsRelation
          && ((HadoopFsRelation) relation).location() instanceof PartitioningAwareFileIndex;
    }
    return leaf instanceof DataSourceV2ScanRelation
        && ((DataSourceV2ScanRelation) leaf).scan() instanceof FileScan;
  }

  /** Whether a leaf of a plan has taken conditions into itself, as Iceberg does with those that
      whole partitions meet or do not. */
  public static boolean hasConditions(LogicalPlan leaf) {
    if (!(leaf instanceof DataSourceV2ScanRelation)) return false;
    Scan scan = ((DataSourceV2ScanRelation) leaf).scan();
    return TableFormats.of(scan).hasConditions(scan);
  }

  /** The read behind a leaf of a plan, or null where it is not one that may be pruned: a stream
      reads all of its batch. */
  public static ScanSource of(LogicalPlan leaf, IndexClient client) {
    if (leaf.isStreaming()) return null;
    if (leaf instanceof DataSourceV2ScanRelation) {
      DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) leaf;
      return of(relation.scan(), relation.output());
    }
    if (!(leaf instanceof LogicalRelation)) return null;
    LogicalRelation relation = (LogicalRelation) leaf;
    return relation.relation() instanceof HadoopFsRelation
        ? (ScanSource) of((HadoopFsRelation) relation.relation(), client)
        : null;
  }

  /** The same for files that Spark reads. */
  public static FileSource of(HadoopFsRelation relation, IndexClient client) {
    TableFormat format = TableFormats.of(relation.location());
    return format.isFormat(relation.location())
        ? format.open(relation)
        : ParquetSource.of(relation, client);
  }

  /** The same for a connector's scan with these columns. */
  public static ConnectorSource of(Scan scan, scala.collection.Iterable output) {
    try {
      return TableFormats.of(scan).open(scan, output);
    } catch (Throwable failure) {
      Failures.passOn(failure);
      return null;
    }
  }

  /** Adds the files in a partition that a connector planned: of each location the bytes. */
  public static void addFiles(InputPartition partition, Map files) {
    try {
      TableFormats.of(partition).addFiles(partition, files);
    } catch (Exception failure) {
      Platform.throwException(failure);
    }
  }
}
