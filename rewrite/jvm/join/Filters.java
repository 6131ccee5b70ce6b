package rewrite.jvm.join;

import java.util.List;
import java.util.function.Predicate;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import rewrite.jvm.predicate.Conditions;

/** Helpers for filters of logical plans. */
final class Filters {
  private Filters() {}

  /** Return a filter without some of its conditions; its child if no condition is left. */
  static LogicalPlan remove(Filter filter, Predicate<Expression> isRemoved) {
    List<Expression> conditions = Conditions.conjuncts(filter.condition());
    if (!conditions.removeIf(isRemoved)) return filter;
    return conditions.isEmpty()
        ? filter.child()
        : filter.copy(Conditions.conjunction(conditions), filter.child());
  }

  /** Whether a filter has dynamic pruning expressions. */
  static boolean isDynamic(LogicalPlan plan) {
    return plan instanceof Filter filter
        && Conditions.conjuncts(filter.condition()).stream().anyMatch(Filters::isDynamic);
  }

  static boolean isDynamic(Expression condition) {
    return Conditions.dynamic(condition) != null;
  }
}
