package rewrite.jvm.join;

import java.util.List;
import org.apache.spark.rdd.DeterministicLevel;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.InnerLike;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.internal.SQLConf;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * The side of a join that provides keys.
 *
 * @param plan the plan that has the keys
 * @param keys the keys, and the one in use
 * @param isHinted whether a hint of the query broadcasts it
 * @param join stands for the join: its keys are columns of the same rows
 * @param columns how many keys of the join are equalities
 * @param hops how many tables it was joined with to prune the next one
 * @param needsExactRows whether too few keys would add rows to the result, because a row without a
 *     partner is kept or written
 */
record FilteringSide(
    LogicalPlan plan, JoinKeys keys, boolean isHinted, Object join, int columns, int hops,
    boolean needsExactRows) {

  /** A side of a join with several equal keys, which have `join` in common. */
  FilteringSide(LogicalPlan plan, JoinKeys keys, boolean isHinted, Object join, int columns) {
    this(CommandCounts.remove(plan), keys, isHinted, join, columns, 0, false);
  }

  FilteringSide(LogicalPlan plan, JoinKeys keys) {
    this(plan, keys, false, new Object(), 1);
  }

  FilteringSide requireExactRows() {
    return new FilteringSide(plan, keys, isHinted, join, columns, hops, true);
  }

  String name() {
    return PlanNames.tables(plan);
  }

  boolean isBroadcast() {
    return keys.canBeBroadcast() && (isHinted || PlanSize.isBroadcast(plan));
  }

  /** Return what may give other rows when it is computed again, or null. */
  String nonRepeatableReason() {
    return Repeatability.nonRepeatableReason(plan, needsExactRows);
  }

  /** Whether keys may come from a shuffle of the query: adaptive execution computes equal exchanges
      once. One above a join or a cache begins later than the scan that would wait for it. Rows of an
      RDD must be the same if Spark loses the shuffle. */
  boolean canBeShuffled() {
    SQLConf conf = SQLConf$.MODULE$.get();
    return keys instanceof JoinKeys.EqualKeys && !plan.isStreaming()
        && conf.adaptiveExecutionEnabled() && conf.exchangeReuseEnabled()
        && !plan.exists(
            node ->
                node instanceof Join || node instanceof InMemoryRelation
                    || node instanceof LogicalRDD rows
                        && !rows.rdd().outputDeterministicLevel()
                            .equals(DeterministicLevel.DETERMINATE()));
  }

  /** Return why its keys cannot be collected, or null. */
  String rejectReason() {
    if (!Repeatability.isDeterministic(plan)) return "the dimension is not deterministic";
    // It may return another value in the join: nobody knows what it reads.
    if (keys.expressions().stream().anyMatch(SubqueryExpression::hasSubquery)) {
      return "the dimension's keys are computed with a subquery";
    }
    return rejectReason(plan);
  }

  private static String rejectReason(LogicalPlan plan) {
    if (plan instanceof CTERelationRef) return "the dimension is a common table that is kept apart";
    if (Filters.isDynamic(plan)) return "the dimension waits for the keys of another one";
    return ScalaInterop.findFirst(plan.children(), FilteringSide::rejectReason);
  }

  /**
   * Return the smallest selective subplan that has the key; its keys are a superset.
   *
   * <p>Of `fact JOIN planes`, joined with a second fact by `planes.tailnum`, that is `planes`.
   */
  FilteringSide smallestSelectivePart() {
    LogicalPlan smallest = plan;
    LogicalPlan part = plan;
    for (LogicalPlan next; (next = selectiveChild(part)) != null; part = next) {
      if (part instanceof Join) smallest = next;
    }
    if (smallest == plan) return this;
    FilteringSide found = new FilteringSide(smallest, keys.ofPart());
    return needsExactRows ? found.requireExactRows() : found;
  }

  private LogicalPlan selectiveChild(LogicalPlan part) {
    boolean passes =
        part instanceof Project || part instanceof Filter
            || part instanceof Join join && join.joinType() instanceof InnerLike;
    if (!passes) return null;
    AttributeSet needed = keys.key().references();
    LogicalPlan found = null;
    for (LogicalPlan child : ScalaInterop.asJava(part.children())) {
      if (needed.subsetOf(child.outputSet())) found = child;
    }
    return found != null && Selectivity.isSelective(found) ? found : null;
  }

  /** Return this side, by `key`, as a restriction of another table's column: `dim JOIN this`. */
  FilteringSide joinTo(LogicalPlan dim, Expression key, Expression column) {
    // The scans of `dim` must not wait for keys: the next table would wait for those, too.
    LogicalPlan free =
        dim.transformUp(
            ScalaInterop.transformation(
                node ->
                    node instanceof Filter filter
                        ? Filters.remove(filter, Filters::isDynamic)
                        : node));
    LogicalPlan joined =
        new Join(
            free, plan, Inner$.MODULE$, scala.Option.apply(new EqualTo(key, keys.key())),
            JoinHint$.MODULE$.NONE());
    List<Attribute> output = ScalaInterop.asJava(column.references().toSeq());
    LogicalPlan projected = new Project(ScalaInterop.asScala(output), joined);
    return new FilteringSide(
        CommandCounts.remove(projected), new JoinKeys.EqualKeys(column), false, new Object(), 1,
        hops + 1, needsExactRows);
  }
}
