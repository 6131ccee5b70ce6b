package rewrite.jvm.keys;

import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.Nodes;

/**
 * Keys of a dimension that its join shuffles: taken of what is shuffled, not of its files again.
 *
 * <pre>
 *   as Spark plans the keys        as they are collected
 *   Aggregate                      Aggregate
 *   +- Aggregate (partial)         +- Aggregate (partial)
 *      +- the dimension               +- Exchange, as the join has it
 *                                        +- the dimension
 * </pre>
 *
 * <p>Adaptive execution computes equal exchanges of one query once. The rows are those that the
 * join sees, so the keys are.
 */
final class SharedShuffle {
  private SharedShuffle() {}

  /** The plan of some keys with the exchange of a join of their query; null: it has none such. */
  static SparkPlan of(SparkPlan keys) {
    if (!(keys instanceof AdaptiveSparkPlanExec) || !keys.conf().exchangeReuseEnabled()) {
      return null;
    }
    AdaptiveSparkPlanExec adaptive = (AdaptiveSparkPlanExec) keys;
    SparkPlan whole = adaptive.inputPlan();
    if (!(whole instanceof BaseAggregateExec)) return null;
    SparkPlan partial = child(whole);
    if (!(partial instanceof BaseAggregateExec)) return null;
    ShuffleExchangeExec there = exchange(adaptive.context().qe().executedPlan(), child(partial));
    if (there == null) return null;
    SparkPlan shared = with(whole, with(partial, over(there, child(partial))));
    return new AdaptiveSparkPlanExec(
        shared, adaptive.context(), adaptive.preprocessingRules(), true,
        adaptive.supportsColumnar());
  }

  private static SparkPlan child(SparkPlan plan) {
    return plan.children().apply(0);
  }

  private static SparkPlan with(SparkPlan plan, SparkPlan child) {
    return plan.withNewChildren(ScalaInterop.asScala(Collections.singletonList(child)));
  }

  /** An exchange of a plan that gives the dimension's rows. */
  private static ShuffleExchangeExec exchange(SparkPlan plan, SparkPlan dimension) {
    if (plan instanceof AdaptiveSparkPlanExec) {
      return exchange(((AdaptiveSparkPlanExec) plan).initialPlan(), dimension);
    }
    if (plan instanceof ShuffleExchangeExec && child(plan).sameResult(dimension)) {
      ShuffleExchangeExec found = (ShuffleExchangeExec) plan;
      return over(found, dimension).sameResult(found) ? found : null;
    }
    List children = ScalaInterop.asJava(plan.children());
    for (int i = 0; i < children.size(); i++) {
      ShuffleExchangeExec found = exchange((SparkPlan) children.get(i), dimension);
      if (found != null) return found;
    }
    return null;
  }

  /** The same exchange of the dimension as it is planned for its keys, which adaptive execution
      finds its place by. */
  private static ShuffleExchangeExec over(ShuffleExchangeExec exchange, SparkPlan dimension) {
    return Nodes.exchange(exchange, dimension);
  }
}
