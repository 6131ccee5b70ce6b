package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Descending$;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.NullsFirst$;
import org.apache.spark.sql.catalyst.expressions.NullsLast$;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Complete$;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.expressions.aggregate.Partial$;
import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.RightOuter$;
import org.apache.spark.sql.execution.CollectLimitExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.LocalLimitExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.TakeOrderedAndProjectExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * The rows of a scan that `WHERE ... [ORDER BY column] LIMIT n` needs, or `min(column)` or
 * `max(column)`: one of the rows with that value.
 *
 * @param function the min or max; null: any rows, or the first of an order
 * @param order the first sort order; null if any rows will do
 * @param scan the node that reads the table
 * @param rows how many rows the query needs, including those that an OFFSET skips
 * @param conditions the filters, other than that the column is not null
 * @param hasNoNulls whether a filter removes rows whose column is null
 */
public record TopRows(
    Expression function, SortOrder order, SparkPlan scan, long rows, List<Expression> conditions,
    boolean hasNoNulls) {
  private static final String IS_DELETED = "__delta_internal_is_row_deleted";

  /**
   * Return what a plan needs of the scan below, each alone sufficient for a part of the result;
   * empty if it has another shape, or no file can be pruned.
   *
   * <p>If a join drops rows, it is unknown how many a file provides. Floating-point columns are not
   * supported: NaN is their max, and is missing in bounds. Further sort columns only break ties.
   *
   * <p>Without an order any rows will do, but only for the result of a query: a plan that reads the
   * same LIMIT twice, as MERGE reads its source, relies on the same rows. Without conditions Spark
   * stops at the first files automatically.
   */
  public static List<TopRows> of(SparkPlan plan) {
    if (plan instanceof BaseAggregateExec aggregate) return ofAggregate(plan, aggregate);
    TopRows top = null;
    if (plan instanceof CollectLimitExec limit && limit.limit() >= 1) {
      top = of(plan, null, null, limit.limit());
      if (top != null && top.conditions.isEmpty()) return List.of();
    } else if (plan instanceof TakeOrderedAndProjectExec first) {
      top = of(plan, null, first.sortOrder().head(), first.limit());
    }
    return top == null ? List.of() : List.of(top);
  }

  /** Return what the functions of an aggregate need; empty if one of them is neither min nor max.
      With a GROUP BY, each group needs rows of its own. */
  private static List<TopRows> ofAggregate(SparkPlan plan, BaseAggregateExec aggregate) {
    if (!aggregate.groupingExpressions().isEmpty()) return List.of();
    List<TopRows> tops = new ArrayList<>();
    for (AggregateExpression each : ScalaInterop.asJava(aggregate.aggregateExpressions())) {
      Expression function = each.aggregateFunction();
      boolean ofRows = each.mode() == Partial$.MODULE$ || each.mode() == Complete$.MODULE$;
      boolean isExtreme = function instanceof Min || function instanceof Max;
      if (!ofRows || !isExtreme || each.filter().isDefined()) return List.of();
      SortOrder order =
          new SortOrder(
              function.children().head(),
              function instanceof Min ? Ascending$.MODULE$ : Descending$.MODULE$,
              NullsLast$.MODULE$, ScalaInterop.asScala(List.of()));
      TopRows top = of(plan, function, order, 1);
      if (top == null) return List.of();
      tops.add(top);
    }
    return tops;
  }

  private static TopRows of(SparkPlan plan, Expression function, SortOrder order, int rows) {
    Attribute column = column(order);
    boolean isColumn = column instanceof AttributeReference;
    if (order != null && (!isColumn || ValueTypes.isFloating(column.dataType()))) return null;
    List<Expression> all = new ArrayList<>();
    SparkPlan scan = null;
    // Another limit on the way drops rows, perhaps all of a file, whatever it orders by.
    for (SparkPlan next = plan.children().head(); next != null; next = below(next, order == null)) {
      if (next instanceof FilterExec filter) all.addAll(Conditions.conjuncts(filter.condition()));
      scan = next;
    }
    if (!scan.children().isEmpty()) return null;
    if (column != null && !scan.outputSet().contains(column)) return null;
    List<Expression> conditions = new ArrayList<>();
    boolean hasNoNulls = false;
    for (Expression condition : all) {
      if (isOfDeletes(condition)) continue;
      boolean isNotNull = condition instanceof IsNotNull;
      if (!isNotNull && !(condition instanceof BinaryComparison)) return null;
      // A column that the plan computes may have the name of one of the table's.
      if (!condition.references().subsetOf(scan.outputSet())) return null;
      boolean isOnColumn = column != null && condition.references().contains(column);
      hasNoNulls |= isOnColumn && !(condition instanceof EqualNullSafe);
      if (!isOnColumn || !isNotNull) conditions.add(condition);
    }
    return new TopRows(function, order, scan, rows, conditions, hasNoNulls);
  }

  /** Whether a condition is Delta's own that a row is not deleted. Deleted rows do not count as
      rows of a file. */
  private static boolean isOfDeletes(Expression condition) {
    return condition instanceof EqualTo equal && equal.left() instanceof AttributeReference column
        && column.name().equals(IS_DELETED);
  }

  /** Return the child that provides the rows of a node, if only a filter drops any; else null. */
  private static SparkPlan below(SparkPlan plan, boolean isUnordered) {
    if (plan instanceof BroadcastHashJoinExec join) {
      if (join.joinType() == RightOuter$.MODULE$) return join.right();
      boolean keepsLeft =
          join.joinType() == LeftOuter$.MODULE$ || join.joinType() instanceof ExistenceJoin;
      return keepsLeft ? join.left() : null;
    }
    boolean keepsRows = plan instanceof ProjectExec || plan instanceof FilterExec
        || isUnordered && plan instanceof LocalLimitExec;
    return keepsRows ? plan.children().head() : null;
  }

  /** Return the first sort column; null if any rows will do. */
  public Attribute column() {
    return column(order);
  }

  private static Attribute column(SortOrder order) {
    return order != null && order.child() instanceof Attribute column ? column : null;
  }

  public boolean isAscending() {
    return order.direction() == Ascending$.MODULE$;
  }

  /** Whether rows with null come first, and no filter removes them. */
  public boolean nullsFirst() {
    return order.nullOrdering() == NullsFirst$.MODULE$ && !hasNoNulls;
  }

  /** Whether rows that are equal to the last one are needed, too: further columns may order them. */
  public boolean needsTies() {
    return function == null;
  }

  /** Return what is equal for two that need the same rows of equal scans. */
  public List<Object> identity() {
    String sorting = order == null ? "" : order.sql();
    List<String> filters = conditions.stream().map(Expression::sql).toList();
    return List.of(needsTies(), sorting, rows, filters, hasNoNulls);
  }

  @Override public String toString() {
    if (function != null) return Conditions.shape(function);
    if (order == null) return "LIMIT ?";
    return "ORDER BY " + Conditions.shape(column()) + (isAscending() ? "" : " DESC") + " LIMIT ?";
  }
}
