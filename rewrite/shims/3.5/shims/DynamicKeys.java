package rewrite.jvm.shims;

import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SubqueryBroadcastExec;
import scala.Option;
import scala.collection.immutable.List;

/**
 * Spark's dynamic pruning.
 *
 * <p>Until 3.5 it has one key; see 4.0.
 */
public final class DynamicKeys {
  private DynamicKeys() {}

  /** The filter that the keys at `index` contain a value. */
  public static DynamicPruningSubquery of(
      Expression value, LogicalPlan plan, List<Expression> keys, int index, boolean onlyInBroadcast,
      ExprId id) {
    return new DynamicPruningSubquery(
        value, plan, keys, index, onlyInBroadcast, id, Option.empty());
  }

  /** Which of the keys a filter is about. */
  public static int index(DynamicPruningSubquery filter) {
    return filter.broadcastKeyIndex();
  }

  /** Which of a broadcast's keys a subquery returns. */
  public static int index(SubqueryBroadcastExec subquery) {
    return subquery.index();
  }
}
