package rewrite.jvm.scan;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.keys.PruningRegistry;
import rewrite.jvm.keys.ScanNotes;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.TopRows;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.ScanSources;
import rewrite.jvm.source.TableStatistics;

/** Opens the scans of physical plans, and has what their pruning needs. */
public record PhysicalScans(
    IndexClient client, PruningRegistry registry, PruningFeedback feedback,
    TableStatistics statistics) {
  /** Returns the scan of a node; null if the node is not a scan. */
  public PhysicalScan of(SparkPlan node) {
    if (node instanceof FileSourceScanExec scan) {
      return new PhysicalFileScan(scan, client, registry);
    }
    if (node instanceof MicroBatchScanExec scan) {
      return ScanSources.isOfStream(scan.stream()) ? new PhysicalStreamScan(scan) : null;
    }
    BatchScanExec scan = node instanceof BatchScanExec plain ? plain : CometNodes.scan(node);
    return scan == null ? null : new PhysicalBatchScan(node, scan, registry, statistics);
  }

  /** Returns the pruning of a scan by conditions and the keys of joins. */
  ScanPruning pruning(
      SparkPlan node, ScanSource read, List<Expression> filters, List<KeyValues> staticKeys,
      List<JoinKeySet> keys, List<TopRows> tops) {
    List<LogicalPlan> planned = ScanNotes.leaves(node);
    return new ScanPruning(
        client, feedback, statistics, planned, read, filters, staticKeys, keys, tops);
  }

  /** Returns why neither an index nor the table's statistics prune a scan with these conditions and
      keys; null if one of them may. */
  public String refusal(
      PhysicalScan scan, ScanSource read, List<Expression> filters,
      List<? extends KeyValues> keys) {
    if (read == null && scan.isOfStream() && client.isOn()) {
      return "a stream reads all files of its batch";
    }
    if (read == null && scan.isOfCommand() && client.isOn()) {
      return SkippingConf.isDmlEnabled()
          ? "a command writes anew what it reads here, and needs all rows"
          : "a command reads all of the table that it changes: spark.skipping.dml is off";
    }
    boolean hasConditions = !filters.isEmpty() || !keys.isEmpty();
    String refusal = client.refusal(read == null ? null : read.table(), hasConditions);
    boolean isKnown = refusal != null && client.isOn() && statistics.concern(read, filters, keys);
    return isKnown ? null : refusal;
  }
}
