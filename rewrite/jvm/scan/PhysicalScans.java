package rewrite.jvm.scan;

import java.util.List;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.source.ScanSource;

/** The scans of physical plans, and what prunes them. */
public final class PhysicalScans {
  private final IndexClient client;
  private final PruningFeedback feedback;

  public PhysicalScans(IndexClient client, PruningFeedback feedback) {
    this.client = client;
    this.feedback = feedback;
  }

  /** The scan that a node is; null if it is none. */
  public PhysicalScan of(Object node) {
    if (node instanceof FileSourceScanExec) {
      return new PhysicalFileScan((FileSourceScanExec) node, client);
    }
    return node instanceof BatchScanExec
        ? new PhysicalBatchScan((BatchScanExec) node, client, feedback)
        : null;
  }

  /** The pruning of what a scan reads, by conditions and the keys of joins. */
  ScanPruning pruning(ScanSource read, List filters, List keys) {
    return new ScanPruning(client, feedback, read, filters, keys);
  }

  /** Why no index would be asked about a scan with these conditions; null: it would. */
  public String refusal(ScanSource read, List filters) {
    return client.refusal(read == null ? null : read.table(), !filters.isEmpty());
  }
}
