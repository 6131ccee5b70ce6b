package rewrite.jvm.shims;

import org.apache.spark.sql.execution.FileSourceScanExec;

/**
 * Scans of files.
 *
 * <p>Since 4.0 they have a field `stream`, and a ScanFileListing counts what they have listed.
 */
public final class FileScans {
  private FileScans() {}

  /** Whether a scan reads a batch of a stream. */
  public static boolean isStream(FileSourceScanExec scan) {
    return scan.stream().isDefined();
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
