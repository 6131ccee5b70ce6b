package rewrite.jvm.shims;

import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SubqueryBroadcastExec;
import scala.Option;
import scala.collection.immutable.List;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's dynamic pruning.
 *
 * <p>Since 4.3 a filter may be about a value that Spark computes from the keys; ours are not.
 */
public final class DynamicKeys {
  private DynamicKeys() {}

  /** The filter that the keys at `index` contain a value. */
  public static DynamicPruningSubquery of(
      Expression value, LogicalPlan plan, List<Expression> keys, int index, boolean onlyInBroadcast,
      ExprId id) {
    return new DynamicPruningSubquery(
        value, plan, keys, one(index), onlyInBroadcast, id, Option.empty(),
        Option.empty());
  }

  /** Which of the keys a filter is about; -1: a value computed from them. */
  public static int index(DynamicPruningSubquery filter) {
    return filter.broadcastValueProjection().isDefined()
        ? -1
        : (Integer) filter.broadcastKeyIndices().apply(0);
  }

  /** Which of a broadcast's keys a subquery returns. */
  public static int index(SubqueryBroadcastExec subquery) {
    return (Integer) subquery.indices().apply(0);
  }

  private static List<Object> one(int index) {
    return CollectionConverters.asScala(java.util.List.of((Object) index)).toList();
  }
}
