package rewrite.jvm.keys;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.exchange.Exchange;
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
 *
 * @param plan the plan of the keys with the exchange
 * @param side the filtering side in it
 * @param needed the columns of the side that the keys are computed from
 * @param query the plan of the query before its first stage ran
 * @param exchange the exchange in that plan
 */
record SharedShuffle(
    AdaptiveSparkPlanExec plan, SparkPlan side, List<Attribute> needed, SparkPlan query,
    ShuffleExchangeExec exchange) {

  /** Return the shuffle for a plan of keys; null if no join of their query has such an exchange. */
  static SharedShuffle of(SparkPlan keys) {
    if (!(keys instanceof AdaptiveSparkPlanExec adaptive) || !keys.conf().exchangeReuseEnabled()) {
      return null;
    }
    SparkPlan complete = adaptive.inputPlan();
    if (!(complete instanceof BaseAggregateExec)) return null;
    SparkPlan partial = child(complete);
    if (!(partial instanceof BaseAggregateExec)) return null;
    SparkPlan side = child(partial);
    AdaptiveSparkPlanExec query = findAdaptive(adaptive.context().qe().executedPlan());
    if (query == null) return null;
    ShuffleExchangeExec exchange = findExchange(query.initialPlan(), side);
    if (exchange == null) return null;
    // Adaptive execution finds the exchange by the plan of the keys, so its child is that plan's.
    SparkPlan shuffled = replaceChild(partial, Nodes.exchange(exchange, side));
    SparkPlan shared = replaceChild(complete, shuffled);
    AdaptiveSparkPlanExec plan =
        new AdaptiveSparkPlanExec(
            shared, adaptive.context(), adaptive.preprocessingRules(), true,
            adaptive.supportsColumnar());
    List<Attribute> needed = ScalaInterop.asJava(partial.references().toSeq());
    return new SharedShuffle(plan, side, needed, query.initialPlan(), exchange);
  }

  private static AdaptiveSparkPlanExec findAdaptive(SparkPlan plan) {
    return plan instanceof AdaptiveSparkPlanExec adaptive
        ? adaptive
        : ScalaInterop.findFirst(plan.children(), SharedShuffle::findAdaptive);
  }

  private static SparkPlan child(SparkPlan plan) {
    return plan.children().head();
  }

  private static SparkPlan replaceChild(SparkPlan plan, SparkPlan child) {
    return plan.withNewChildren(ScalaInterop.asScala(List.of(child)));
  }

  /** Return an exchange of a plan that has the rows of the filtering side, or null. */
  private static ShuffleExchangeExec findExchange(SparkPlan plan, SparkPlan side) {
    if (plan instanceof ShuffleExchangeExec exchange && child(plan).sameResult(side)) {
      return Nodes.exchange(exchange, side).sameResult(exchange) ? exchange : null;
    }
    return ScalaInterop.findFirst(plan.children(), child -> findExchange(child, side));
  }

  /**
   * Whether the query has the columns of the keys only from this exchange, which is one of the first
   * that adaptive execution runs: it changes nothing in the plan before.
   */
  boolean isOnlySource() {
    return isNeeded(exchange)
        && !side.exists(node -> node instanceof Exchange || node instanceof InMemoryTableScanExec)
        && !query.exists(SharedShuffle::hasSubquery) && isOnlySource(query);
  }

  private boolean isOnlySource(SparkPlan node) {
    if (node instanceof ShuffleExchangeExec && node.sameResult(exchange)) return true;
    List<SparkPlan> children = ScalaInterop.asJava(node.children());
    return (!isNeeded(node) || children.stream().anyMatch(this::isNeeded))
        && children.stream().allMatch(this::isOnlySource);
  }

  /** Whether a node returns one of the columns that the keys are computed from. */
  private boolean isNeeded(SparkPlan node) {
    return needed.stream().anyMatch(node.outputSet()::contains);
  }

  /** Whether a node has a subquery of the query, with joins that are not in its plan. */
  private static boolean hasSubquery(SparkPlan node) {
    return node.expressions().exists(SharedShuffle::hasSubquery);
  }

  private static boolean hasSubquery(Expression e) {
    return e instanceof ExecSubqueryExpression
        || !(e instanceof DynamicPruningExpression) && e.children().exists(SharedShuffle::hasSubquery);
  }

  /** Make this shuffle the only one of the query with these rows; whether it has begun, and is. */
  boolean unite() {
    return EqualStages.unite(plan.context(), exchange);
  }
}
