package rewrite.jvm.keys;

import java.util.List;
import org.apache.spark.rdd.DeterministicLevel;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.UnionExec;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.ExchangeQueryStageExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.Nodes;

/**
 * The keys of a filtering side that its query shuffles: from the shuffle, not from its files again.
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
 * that the join reads. The exchange may also be below operators of the side, as that of its
 * aggregate is.
 *
 * @param plan the plan of the keys with the exchange
 * @param needed the columns of the side that the keys are computed from
 * @param query the query; its current plan has the stages that have begun
 * @param exchange the exchange in the plan of the keys
 */
record SharedShuffle(
    AdaptiveSparkPlanExec plan, List<Attribute> needed, AdaptiveSparkPlanExec query,
    ShuffleExchangeExec exchange) {

  /** Which operators of a filtering side above the exchange are computed again for the keys. */
  enum Operators {
    ALL,
    /** Those without code of the user's. Without the others there may be more keys. */
    CHEAP,
    /** None, because they may return other rows: the keys are those of all rows of the exchange. */
    NONE
  }

  /** Return the shuffle for a plan of keys; null if their query has no such exchange, or, unless all
      operators are repeated, may not compute it. */
  static SharedShuffle of(SparkPlan keys, Operators repeated) {
    if (!(keys instanceof AdaptiveSparkPlanExec adaptive) || !keys.conf().exchangeReuseEnabled()) {
      return null;
    }
    AdaptiveSparkPlanExec query = findAdaptive(adaptive.context().qe().executedPlan());
    if (query == null) return null;
    // Exchanges are only in the second one, where they may hide that the side is that of a join.
    for (SparkPlan complete : List.of(adaptive.inputPlan(), adaptive.initialPlan())) {
      if (!(complete instanceof BaseAggregateExec)) return null;
      SparkPlan partial = child(complete);
      if (partial instanceof Exchange) partial = child(partial);
      if (!(partial instanceof BaseAggregateExec)) return null;
      List<Attribute> needed = ScalaInterop.asJava(partial.references().toSeq());
      Cut cut = Cut.of(child(partial), query, needed, repeated);
      if (cut == null) continue;
      SparkPlan shared = replaceChild(complete, replaceChild(partial, cut.plan));
      AdaptiveSparkPlanExec plan =
          new AdaptiveSparkPlanExec(
              shared, adaptive.context(), adaptive.preprocessingRules(), true,
              adaptive.supportsColumnar());
      return new SharedShuffle(plan, needed, query, cut.exchange);
    }
    return null;
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

  /** A filtering side whose rows come from an exchange. */
  private record Cut(SparkPlan plan, ShuffleExchangeExec exchange) {
    /** Return a side with its uppermost exchange that a query has, and the operators above it that
        are repeated; null if no exchange has the columns that are needed. */
    static Cut of(
        SparkPlan side, AdaptiveSparkPlanExec query, List<Attribute> needed, Operators repeated) {
      ShuffleExchangeExec exchange = findExchange(query.initialPlan(), side);
      if (exchange != null && (repeated == Operators.ALL || isCertain(query, exchange))) {
        return new Cut(exchange, exchange);
      }
      if (side.children().size() != 1) return null;
      Cut below = of(child(side), query, needed, repeated);
      if (below == null) return null;
      boolean isRepeated =
          repeated == Operators.ALL
              || repeated == Operators.CHEAP && isCheap(side)
                  && child(side).outputSet().subsetOf(below.plan.outputSet());
      if (isRepeated) return new Cut(replaceChild(side, below.plan), below.exchange);
      return needed.stream().allMatch(below.plan.outputSet()::contains) ? below : null;
    }

    /** Return the exchange of a query that has the rows of a plan, as an exchange of this plan, or
        null. */
    private static ShuffleExchangeExec findExchange(SparkPlan query, SparkPlan plan) {
      if (query instanceof ShuffleExchangeExec exchange) {
        if (exchange.sameResult(plan)) return (ShuffleExchangeExec) plan;
        if (child(query).sameResult(plan)) {
          // Adaptive execution finds the exchange by the plan of the keys: that plan is its child.
          ShuffleExchangeExec own = Nodes.exchange(exchange, plan);
          if (own.sameResult(exchange)) return own;
        }
      }
      return ScalaInterop.findFirst(query.children(), child -> findExchange(child, plan));
    }

    private static boolean isCheap(SparkPlan node) {
      boolean isKnown =
          node instanceof ProjectExec || node instanceof FilterExec || node instanceof SortExec
              || node instanceof BaseAggregateExec;
      return isKnown
          && !node.expressions().exists(e -> e.exists(UserDefinedExpression.class::isInstance));
    }
  }

  /** Whether a query computes an exchange as it is now planned: its stage has begun, or is one of
      the first. */
  private static boolean isCertain(AdaptiveSparkPlanExec query, SparkPlan exchange) {
    return !query.initialPlan().exists(SharedShuffle::hasSubquery)
        && query.executedPlan().exists(
            node ->
                node.sameResult(exchange)
                    && (node instanceof QueryStageExec
                        || !node.exists(part -> part != node && beginsLater(part))));
  }

  /** Whether adaptive execution may plan anew what is above a node, before it begins. */
  private static boolean beginsLater(SparkPlan node) {
    return node instanceof Exchange || node instanceof QueryStageExec
        || node instanceof InMemoryTableScanExec;
  }

  /** Whether the query has the columns of the keys only from this exchange. */
  boolean isOnlySource() {
    SparkPlan current = query.executedPlan();
    return needed.stream()
        .allMatch(
            column ->
                isOnlySource(current, column)
                    && current.exists(
                        node -> node.sameResult(exchange) && node.outputSet().contains(column)));
  }

  private boolean isOnlySource(SparkPlan node, Attribute column) {
    if (node.sameResult(exchange)) return true;
    List<SparkPlan> children = ScalaInterop.asJava(node.children());
    if (node.outputSet().contains(column)) {
      // A union returns the rows of all its children as columns of the first one.
      boolean passes = children.stream().anyMatch(child -> child.outputSet().contains(column));
      if (!passes || node instanceof UnionExec) return false;
    }
    return children.stream().allMatch(child -> isOnlySource(child, column));
  }

  /** Whether a node has a subquery of the query, with joins that are not in its plan. */
  private static boolean hasSubquery(SparkPlan node) {
    return node.expressions().exists(SharedShuffle::hasSubquery);
  }

  private static boolean hasSubquery(Expression e) {
    return e instanceof ExecSubqueryExpression
        || !(e instanceof DynamicPruningExpression) && e.children().exists(SharedShuffle::hasSubquery);
  }

  /** Let this shuffle be the only one of the query with these rows: return its stage; null if it has
      not begun, or there is another one. */
  ExchangeQueryStageExec unite() {
    return EqualStages.unite(plan.context(), exchange);
  }

  /** Let the query read this shuffle, now that it is written; whether it can read no other one. */
  boolean restart() {
    if (!(unite() instanceof ShuffleQueryStageExec stage)) return false;
    EqualStages.restart(plan.context(), exchange, stage);
    return true;
  }

  /** Whether Spark takes it that the rows are the same when lost ones are computed again. */
  boolean isDeterminate() {
    return unite().plan() instanceof ShuffleExchangeExec shuffle
        && !shuffle.shuffleDependency().rdd().outputDeterministicLevel()
            .equals(DeterministicLevel.INDETERMINATE());
  }
}
