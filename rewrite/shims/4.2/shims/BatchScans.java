package rewrite.jvm.shims;

import org.apache.spark.Partition;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.physical.KeyedPartitioning;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceRDDPartition;
import scala.collection.Iterable;
import scala.collection.immutable.List;

/**
 * Scans of connectors.
 *
 * <p>Since 4.2 a node above them groups their partitions, and a task reads at most one.
 */
public final class BatchScans {
  private BatchScans() {}

  /** Whether joins rely on a scan's partitions and their keys. */
  public static boolean isGrouped(BatchScanExec scan) {
    return scan.outputPartitioning() instanceof KeyedPartitioning;
  }

  /** A copy with another scan and other runtime filters. */
  public static BatchScanExec copy(BatchScanExec scan, Scan other, List<Expression> runtimeFilters) {
    return scan.copy(
        scan.output(), other, runtimeFilters, scan.ordering(), scan.table(), scan.keyGroupedPartitioning());
  }

  /** The partitions that a task reads; null if a connector has not planned it. */
  public static Iterable<InputPartition> inputs(Partition task) {
    return task instanceof DataSourceRDDPartition planned ? planned.inputPartition().toList() : null;
  }
}
