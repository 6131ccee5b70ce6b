package rewrite.jvm.shims;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.execution.LocalTableScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import scala.Option;
import scala.collection.immutable.List;

/**
 * Constructors of plan nodes.
 *
 * <p>Since 4.0 local rows may be of a stream.
 */
public final class Nodes {
  private Nodes() {}

  /** A relation with some rows. */
  public static LocalRelation relation(List<Attribute> output, List<InternalRow> rows) {
    return new LocalRelation(output, rows, false, Option.empty());
  }

  /** A scan of some rows. */
  public static SparkPlan scan(List<Attribute> output, List<InternalRow> rows) {
    return new LocalTableScanExec(output, rows, Option.empty());
  }

  /** The same exchange of another plan. */
  public static ShuffleExchangeExec exchange(ShuffleExchangeExec exchange, SparkPlan child) {
    return new ShuffleExchangeExec(
        exchange.outputPartitioning(), child, exchange.shuffleOrigin(),
        exchange.advisoryPartitionSize());
  }
}
