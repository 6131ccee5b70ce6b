package rewrite.jvm.scan;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.predicate.ScalarSubqueries;
import rewrite.jvm.source.ConnectorSource;
import rewrite.jvm.source.ScanSources;

/**
 * The micro-batch of a connector's stream: Iceberg.
 *
 * <p>Spark has planned its files already. It adds the rows of a batch to the source whose stream
 * equals that of the scan, and makes no copy of a scan with other partitions. So the node stays, and
 * loses planned partitions. A copy of it plans all files again.
 */
final class PhysicalStreamScan extends PhysicalScan {
  private static final TreeNodeTag<ScanPruning> PRUNING = new TreeNodeTag<>("rewrite.pruning");
  private static final String PLANNED = "inputPartitions";

  private final MicroBatchScanExec scan;

  PhysicalStreamScan(MicroBatchScanExec scan) {
    this.scan = scan;
  }

  @Override public SparkPlan node() {
    return scan;
  }

  @Override public ConnectorSource read() {
    return isPruned()
        ? (ConnectorSource) pruning().read()
        : ScanSources.of(
            scan.stream(), scan.scan(), ScalaInterop.asJava(scan.inputPartitions()));
  }

  @Override boolean isOfCommand() {
    return false;
  }

  @Override boolean isOfStream() {
    return true;
  }

  @Override public boolean isIndexable() {
    return true;
  }

  @Override ScanPruning pruning() {
    return ScalaInterop.orNull(scan.getTagValue(PRUNING));
  }

  @Override boolean hasFilters() {
    return false;
  }

  /** Returns those whose values are known when Spark plans the batch. */
  @Override public List<Expression> filters(List<Expression> above) {
    List<Expression> filters = new ArrayList<>(above);
    filters.removeAll(ScalarSubqueries.of(filters));
    return filters;
  }

  /** JoinPruningRule adds no keys to it. */
  @Override List<JoinKeySet> keys() {
    return List.of();
  }

  @Override SparkPlan prune(ScanPruning pruning, boolean waits) throws Exception {
    ConnectorSource batch = (ConnectorSource) pruning.read();
    Set<String> pruned = PrunedBatchScan.findPrunable(batch, pruning);
    InputPartition[] remaining = batch.without(pruned, List.of(), false);
    Field planned = MicroBatchScanExec.class.getDeclaredField(PLANNED);
    planned.setAccessible(true);
    planned.set(scan, ScalaInterop.asScala(Arrays.asList(remaining)));
    scan.setTagValue(PRUNING, pruning);
    return scan;
  }

  @Override public Map<String, Object> count() {
    return counts();
  }

  @Override public Number countOpened() {
    return findOpened().size();
  }

  @Override public Number sumOpenedBytes() {
    return findOpened().values().stream().mapToLong(Long::longValue).sum();
  }

  private Map<String, Long> findOpened() {
    Map<String, Long> files = new HashMap<>();
    for (InputPartition each : ScalaInterop.asJava(scan.inputPartitions())) {
      ScanSources.addFiles(each, files);
    }
    return files;
  }

  @Override public Object source() {
    return read();
  }

  @Override public String name() {
    ConnectorSource read = read();
    return read == null ? scan.scan().description() : read.name();
  }
}
