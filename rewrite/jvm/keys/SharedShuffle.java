package rewrite.jvm.keys;

import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.DeterministicLevel;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Command;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.ExecSubqueryExpression;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
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
 * that the join reads. If the side must not run twice, the exchange may also be below operators of
 * the side, as that of its aggregate is: the keys are those of all rows in it.
 *
 * @param plan the plan of the keys with the exchange
 * @param form what the exchange and those equal to it have in common; one object for each query
 */
record SharedShuffle(AdaptiveSparkPlanExec plan, SparkPlan form) {
  /**
   * Return the shuffle for a plan of keys, or null.
   *
   * <p>If the side must not run twice, the query must certainly compute the exchange, and have the
   * keys only from it.
   */
  static SharedShuffle of(SparkPlan keys, boolean isOnlyShared) {
    if (!(keys instanceof AdaptiveSparkPlanExec adaptive) || !keys.conf().exchangeReuseEnabled()) {
      return null;
    }
    AdaptiveSparkPlanExec query = findAdaptive(adaptive.context().qe().executedPlan());
    if (query == null || isOnlyShared && isOfCommand(query)) return null;
    // Exchanges are only in the second one, where they may hide that the side is that of a join.
    for (SparkPlan complete : List.of(adaptive.inputPlan(), adaptive.initialPlan())) {
      if (!(complete instanceof BaseAggregateExec)) return null;
      SparkPlan partial = child(complete);
      if (partial instanceof Exchange) partial = child(partial);
      if (!(partial instanceof BaseAggregateExec)) return null;
      List<Attribute> needed = ScalaInterop.asJava(partial.references().toSeq());
      ShuffleExchangeExec own = find(query, child(partial), needed, isOnlyShared);
      if (own == null) continue;
      SparkPlan original =
          ScalaInterop.orNull(query.initialPlan().find(node -> node.sameResult(own)));
      LogicalPlan link = adaptive.inputPlan().logicalLink().get();
      SparkPlan plan = plan(link, List.of(partial, complete), own);
      return new SharedShuffle(
          new AdaptiveSparkPlanExec(
              plan, adaptive.context(), adaptive.preprocessingRules(), true,
              adaptive.supportsColumnar()),
          original.canonicalized());
    }
    return null;
  }

  /** Return the aggregates of the keys above an exchange. Adaptive execution plans them anew from
      their logical plan, which must not have the operators of the side above the exchange either. */
  private static SparkPlan plan(
      LogicalPlan link, List<SparkPlan> aggregates, SparkPlan exchange) {
    LogicalPlan below = findLink(exchange);
    LogicalPlan keys = link.withNewChildren(ScalaInterop.asScala(List.of(below)));
    SparkPlan plan = exchange;
    plan.setLogicalLink(below);
    for (SparkPlan aggregate : aggregates) {
      plan = aggregate.withNewChildren(ScalaInterop.asScala(List.of(plan)));
      plan.setLogicalLink(keys);
    }
    return plan;
  }

  /** Return the logical plan of the first node that has one: Spark adds exchanges later. */
  private static LogicalPlan findLink(SparkPlan plan) {
    LogicalPlan link = ScalaInterop.orNull(plan.logicalLink());
    return link != null ? link : ScalaInterop.findFirst(plan.children(), SharedShuffle::findLink);
  }

  private static AdaptiveSparkPlanExec findAdaptive(SparkPlan plan) {
    return plan instanceof AdaptiveSparkPlanExec adaptive
        ? adaptive
        : ScalaInterop.findFirst(plan.children(), SharedShuffle::findAdaptive);
  }

  private static SparkPlan child(SparkPlan plan) {
    return plan.children().head();
  }

  /** Return the exchange in the plan of the keys that is one of the query, or null. */
  private static ShuffleExchangeExec find(
      AdaptiveSparkPlanExec query, SparkPlan side, List<Attribute> needed, boolean isOnlyShared) {
    ShuffleExchangeExec own = findExchange(query.initialPlan(), side);
    if (!isOnlyShared || own != null && isUsable(query, own, needed)) return own;
    return side.children().size() == 1 ? find(query, child(side), needed, true) : null;
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

  /** Whether a query writes, or is part of a command, or a cache. If Spark loses the shuffle, and rows
      differ when they are computed again, they would be kept without their partners. */
  private static boolean isOfCommand(AdaptiveSparkPlanExec query) {
    SparkContext context = query.context().session().sparkContext();
    String id = context.getLocalProperty("spark.sql.execution.id");
    String root = context.getLocalProperty("spark.sql.execution.root.id");
    QueryExecution execution = query.context().qe();
    return execution.analyzed() instanceof Command
        || id == null || root != null && !root.equals(id)
        || SQLExecution.getQueryExecution(Long.parseLong(id)) != execution;
  }

  /** Whether a query computes an exchange as it is now planned, and has some columns only from it. */
  private static boolean isUsable(
      AdaptiveSparkPlanExec query, SparkPlan exchange, List<Attribute> needed) {
    SparkPlan current = query.executedPlan();
    return !query.initialPlan().exists(SharedShuffle::hasSubquery)
        && current.exists(node -> node.sameResult(exchange) && isFirst(node))
        && needed.stream()
            .allMatch(
                column ->
                    isOnlySource(exchange, current, column)
                        && current.exists(
                            node ->
                                node.sameResult(exchange) && node.outputSet().contains(column)));
  }

  /** Whether a stage has begun, or an exchange is below all others: adaptive execution may plan
      anew what is above a stage, before it begins. */
  private static boolean isFirst(SparkPlan node) {
    return node instanceof QueryStageExec
        || ScalaInterop.asJava(node.children()).stream()
            .noneMatch(child -> child.exists(SharedShuffle::beginsLater));
  }

  private static boolean beginsLater(SparkPlan node) {
    return node instanceof Exchange || node instanceof QueryStageExec
        || node instanceof InMemoryTableScanExec;
  }

  private static boolean isOnlySource(SparkPlan exchange, SparkPlan node, Attribute column) {
    if (node.sameResult(exchange)) return true;
    List<SparkPlan> children = ScalaInterop.asJava(node.children());
    if (node.outputSet().contains(column)) {
      // A union returns the rows of all its children as columns of the first one.
      boolean passes = children.stream().anyMatch(child -> child.outputSet().contains(column));
      if (!passes || node instanceof UnionExec) return false;
    }
    return children.stream().allMatch(child -> isOnlySource(exchange, child, column));
  }

  /** Whether a node has a subquery of the query, with joins that are not in its plan. */
  private static boolean hasSubquery(SparkPlan node) {
    return node.expressions().exists(SharedShuffle::hasSubquery);
  }

  private static boolean hasSubquery(Expression e) {
    return e instanceof ExecSubqueryExpression
        || !(e instanceof DynamicPruningExpression)
            && e.children().exists(SharedShuffle::hasSubquery);
  }

  /**
   * Let adaptive execution use the stage that has begun for all equal exchanges of the query, and
   * return it; null if none has begun, or several have.
   *
   * <p>Adaptive execution itself compares exchanges after their scans were pruned, perhaps by
   * lookups with different responses.
   */
  ShuffleQueryStageExec unite() {
    ShuffleQueryStageExec found = null;
    for (ExchangeQueryStageExec each : ScalaInterop.asJava(plan.context().stageCache().values())) {
      if (!(each instanceof ShuffleQueryStageExec stage)) continue;
      if (!stage.canonicalized().equals(form)) continue;
      if (found != null && found.plan() != stage.plan()) return null;
      found = stage;
    }
    // Adaptive execution looks an exchange up in this form before it makes a stage of it.
    if (found != null) plan.context().stageCache().putIfAbsent(form, found);
    return found;
  }

  /**
   * Let the query read this shuffle, now that it is written; whether it can read no other one.
   *
   * <p>Adaptive execution puts a stage into its logical plan only if it has not found it finished.
   * Otherwise it may broadcast the other side of the join, and compute this one again. So it gets a
   * stage of the same shuffle that is yet to finish.
   */
  boolean restart() {
    ShuffleQueryStageExec stage = unite();
    if (stage == null) return false;
    plan.context().stageCache().put(
        form, new ShuffleQueryStageExec(stage.id(), stage.plan(), stage._canonicalized()));
    return true;
  }

  /** Let the query compute the shuffle again if it failed for the keys. Adaptive execution caches stages
      that failed, too. */
  void evictFailed() {
    var cache = plan.context().stageCache();
    for (ExchangeQueryStageExec stage : ScalaInterop.asJava(cache.values())) {
      if (stage.isMaterialized() || !stage.canonicalized().equals(form)) continue;
      cache.remove(stage.plan().canonicalized());
      cache.remove(form);
    }
  }

  /** Whether Spark takes it that lost rows are the same when it computes them again. Which rows a
      LIMIT keeps depends on their order. */
  boolean isDeterminate() {
    return unite().plan() instanceof ShuffleExchangeExec shuffle
        && shuffle.shuffleDependency().rdd().outputDeterministicLevel()
            .equals(DeterministicLevel.DETERMINATE());
  }
}
