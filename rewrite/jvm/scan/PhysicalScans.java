package rewrite.jvm.scan;

import java.util.List;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.predicate.TopRows;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.TableStatistics;

/** The scans of physical plans, and what prunes them. */
public final class PhysicalScans {
  private final IndexClient client;
  private final PruningFeedback feedback;
  private final TableStatistics statistics;

  public PhysicalScans(
      IndexClient client, PruningFeedback feedback, TableStatistics statistics) {
    this.client = client;
    this.feedback = feedback;
    this.statistics = statistics;
  }

  /** The scan that a node is; null if it is none. */
  public PhysicalScan of(Object node) {
    if (node instanceof FileSourceScanExec) {
      return new PhysicalFileScan((FileSourceScanExec) node, client, feedback);
    }
    return node instanceof BatchScanExec
        ? new PhysicalBatchScan((BatchScanExec) node, feedback, statistics)
        : null;
  }

  /** The pruning of what a scan reads, by conditions and the keys of joins. */
  ScanPruning pruning(ScanSource read, List filters, List keys, TopRows top) {
    return new ScanPruning(client, feedback, statistics, read, filters, keys, top);
  }

  /** Collects the keys of joins that a scan waits for. */
  void collect(ScanSource read, List keys) {
    JoinKeySet.collect(keys, statistics.composites(read), client);
  }

  /** What an order wants of a scan, if its table may know which files have that; else null. */
  TopRows known(ScanSource read, TopRows top) {
    return top != null && client.isOn() && statistics.know(read, top) ? top : null;
  }

  /** Why neither an index nor the table would be asked about a scan with these conditions, and the
      keys of joins; null: one would. */
  public String refusal(PhysicalScan scan, ScanSource read, List filters, List keys) {
    if (read == null && scan.isStreamed() && client.isOn()) {
      return "a stream reads all files of its batch";
    }
    if (read == null && scan.isOfCommand() && client.isOn()) {
      return SkippingConf.servesCommands()
          ? "a command writes anew what it reads here, and needs all rows"
          : "a command reads all of the table that it changes: spark.skipping.dml is off";
    }
    boolean something = !filters.isEmpty() || !keys.isEmpty();
    String refusal = client.refusal(read == null ? null : read.table(), something);
    boolean known = refusal != null && client.isOn() && statistics.concern(read, filters, keys);
    return known ? null : refusal;
  }
}
