package rewrite.jvm.shims;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import scala.collection.immutable.List;

/**
 * Constructors of plan nodes.
 *
 * <p>Until 3.5 local rows are of no stream; see 4.0.
 */
public final class Nodes {
  private Nodes() {}

  /** A relation with some rows. */
  public static LocalRelation relation(List<Attribute> output, List<InternalRow> rows) {
    return new LocalRelation(output, rows, false);
  }

  /** A scan of some rows. */
  public static SparkPlan scan(List<Attribute> output, List<InternalRow> rows) {
    return new LocalTableScanExec(output, rows);
  }

  /** The same scan of files that reads another relation, with other filters. */
  public static FileSourceScanExec copy(
      FileSourceScanExec scan, HadoopFsRelation relation, List<Expression> partitionFilters,
      List<Expression> dataFilters) {
    return scan.copy(
        relation, scan.output(), scan.requiredSchema(), partitionFilters, scan.optionalBucketSet(),
        scan.optionalNumCoalescedBuckets(), dataFilters, scan.tableIdentifier(),
        scan.disableBucketedScan());
  }

  /** The same exchange of another plan. */
  public static ShuffleExchangeExec exchange(ShuffleExchangeExec exchange, SparkPlan child) {
    return new ShuffleExchangeExec(
        exchange.outputPartitioning(), child, exchange.shuffleOrigin(),
        exchange.advisoryPartitionSize());
  }
}
