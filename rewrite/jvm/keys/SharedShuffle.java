package rewrite.jvm.keys;

import java.util.List;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.Nodes;

/**
 * The keys of a filtering side that its join shuffles: from the shuffle, not from its files again.
 *
 * <pre>
 *   as Spark plans the keys        as they are collected
 *   Aggregate                      Aggregate
 *   +- Aggregate (partial)         +- Aggregate (partial)
 *      +- the filtering side          +- Exchange, as the join has it
 *                                        +- the filtering side
 * </pre>
 *
 * <p>Adaptive execution computes equal exchanges of one query once. So the keys come from the rows
 * that the join reads.
 */
final class SharedShuffle {
  private SharedShuffle() {}

  /** Return the plan of some keys with the exchange of a join of their query; null if it has no
      such exchange. */
  static SparkPlan of(SparkPlan keys) {
    if (!(keys instanceof AdaptiveSparkPlanExec adaptive) || !keys.conf().exchangeReuseEnabled()) {
      return null;
    }
    SparkPlan complete = adaptive.inputPlan();
    if (!(complete instanceof BaseAggregateExec)) return null;
    SparkPlan partial = child(complete);
    if (!(partial instanceof BaseAggregateExec)) return null;
    SparkPlan side = child(partial);
    ShuffleExchangeExec exchange = findExchange(adaptive.context().qe().executedPlan(), side);
    if (exchange == null) return null;
    // Adaptive execution finds the exchange by the plan of the keys, so its child is that plan's.
    SparkPlan shuffled = replaceChild(partial, Nodes.exchange(exchange, side));
    SparkPlan shared = replaceChild(complete, shuffled);
    return new AdaptiveSparkPlanExec(
        shared, adaptive.context(), adaptive.preprocessingRules(), true,
        adaptive.supportsColumnar());
  }

  private static SparkPlan child(SparkPlan plan) {
    return plan.children().head();
  }

  private static SparkPlan replaceChild(SparkPlan plan, SparkPlan child) {
    return plan.withNewChildren(ScalaInterop.asScala(List.of(child)));
  }

  /** Return an exchange of a plan that has the rows of the filtering side, or null. */
  private static ShuffleExchangeExec findExchange(SparkPlan plan, SparkPlan side) {
    if (plan instanceof AdaptiveSparkPlanExec adaptive) {
      return findExchange(adaptive.initialPlan(), side);
    }
    if (plan instanceof ShuffleExchangeExec exchange && child(plan).sameResult(side)) {
      return Nodes.exchange(exchange, side).sameResult(exchange) ? exchange : null;
    }
    return ScalaInterop.findFirst(plan.children(), child -> findExchange(child, side));
  }
}
