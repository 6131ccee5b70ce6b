package rewrite.jvm.shims;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import scala.collection.immutable.List;

/**
 * Scans of files.
 *
 * <p>Since 4.3 a scan may be marked to run in a single task.
 */
public final class FileScans {
  private FileScans() {}

  /** Whether a scan reads a batch of a stream. */
  public static boolean isStream(FileSourceScanExec scan) {
    return scan.stream().isDefined();
  }

  /** A copy that reads another relation, with other filters. */
  public static FileSourceScanExec copy(
      FileSourceScanExec scan, HadoopFsRelation relation, List<Expression> partitionFilters,
      List<Expression> dataFilters) {
    return scan.copy(
        relation, scan.stream(), scan.output(), scan.requiredSchema(), partitionFilters,
        scan.optionalBucketSet(), scan.optionalNumCoalescedBuckets(), dataFilters,
        scan.tableIdentifier(), scan.disableBucketedScan(), scan.markedForSingleTaskExecution());
  }

  /** The number of files that a scan has listed; they are known once it has run. */
  public static long countFiles(FileSourceScanExec scan) {
    return scan.dynamicallySelectedPartitions().totalNumberOfFiles();
  }

  /** The size of these files in bytes. */
  public static long countBytes(FileSourceScanExec scan) {
    return scan.dynamicallySelectedPartitions().totalFileSize();
  }
}
