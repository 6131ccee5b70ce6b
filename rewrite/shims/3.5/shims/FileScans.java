package rewrite.jvm.shims;

import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import scala.collection.Iterator;

/**
 * Scans of files.
 *
 * <p>Until 3.5 they do not know of streams, and list partitions; see 4.0 for what came then.
 */
public final class FileScans {
  private FileScans() {}

  /** Whether a scan reads a batch of a stream. */
  public static boolean isStream(FileSourceScanExec scan) {
    return false;
  }

  /** The number of files that a scan has listed; they are known once it has run. */
  public static long countFiles(FileSourceScanExec scan) {
    long files = 0;
    for (PartitionDirectory each : scan.dynamicallySelectedPartitions()) {
      files += each.files().size();
    }
    return files;
  }

  /** The size of these files in bytes. */
  public static long countBytes(FileSourceScanExec scan) {
    long bytes = 0;
    for (PartitionDirectory each : scan.dynamicallySelectedPartitions()) {
      Iterator<FileStatusWithMetadata> files = each.files().iterator();
      while (files.hasNext()) bytes += files.next().getLen();
    }
    return bytes;
  }
}
