package rewrite.jvm.predicate;

import java.util.List;
import java.util.function.UnaryOperator;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import rewrite.jvm.bridge.ScalaInterop;

/** The plans of the subqueries in a logical plan, which are no children. */
public final class PlanSubqueries {
  private PlanSubqueries() {}

  /** Return the nodes of a plan and of its subqueries. */
  public static List<LogicalPlan> nodes(LogicalPlan plan) {
    return ScalaInterop.asJava(
        plan.collectWithSubqueries(ScalaInterop.<LogicalPlan>transformation(each -> each)));
  }

  /** Return a node with changed plans of the subqueries in its expressions. Not those of correlated
      ones, which Spark joins with the outer query first, nor those that provide a join's keys. */
  public static LogicalPlan transform(LogicalPlan node, UnaryOperator<LogicalPlan> change) {
    return node.transformExpressionsDown(
        ScalaInterop.transformation(expression -> transform(expression, change)));
  }

  private static Expression transform(Expression e, UnaryOperator<LogicalPlan> change) {
    if (!(e instanceof SubqueryExpression subquery) || e instanceof DynamicPruningSubquery
        || subquery.isCorrelated()) {
      return e;
    }
    LogicalPlan changed = change.apply(subquery.plan());
    return changed == subquery.plan() ? subquery : subquery.withNewPlan(changed);
  }
}
