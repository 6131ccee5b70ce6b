package rewrite.jvm.join;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * Removes the counters from the source of a MERGE: read again for its keys, its rows must not be
 * counted twice.
 *
 * <p>Delta counts in expressions that return the value of their child, within conditions that are
 * always true.
 */
final class CommandCounts {
  private static final String COUNT = "org.apache.spark.sql.delta.metric.IncrementMetric";

  private CommandCounts() {}

  /** Return the plan without counters; the plan itself if it has none. */
  static LogicalPlan remove(LogicalPlan plan) {
    return plan.deterministic()
        ? plan
        : plan.transformUp(ScalaInterop.transformation(CommandCounts::removeFrom));
  }

  private static LogicalPlan removeFrom(LogicalPlan node) {
    LogicalPlan bare =
        node.transformExpressions(
            ScalaInterop.transformation(
                e -> e.getClass().getName().equals(COUNT) ? e.children().head() : e));
    return bare instanceof Filter filter && isTrue(filter) ? filter.child() : bare;
  }

  /** Whether a filter keeps every row, judged by its condition and the columns below it. */
  private static boolean isTrue(Filter filter) {
    Expression condition = filter.condition();
    if (condition instanceof Attribute column && filter.child() instanceof Project project) {
      for (NamedExpression each : ScalaInterop.asJava(project.projectList())) {
        if (each instanceof Alias alias && alias.exprId().equals(column.exprId())) {
          condition = alias.child();
        }
      }
    }
    return condition.equals(Literal$.MODULE$.TrueLiteral());
  }
}
