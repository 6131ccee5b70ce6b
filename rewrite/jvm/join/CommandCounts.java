package rewrite.jvm.join;

import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * The source of a MERGE without what counts its rows: read again for its keys, it must not be
 * counted twice.
 *
 * <p>Delta counts in expressions that give the value of their child, within conditions that are
 * always true.
 */
final class CommandCounts {
  private static final String COUNT = "org.apache.spark.sql.delta.metric.IncrementMetric";

  private CommandCounts() {}

  /** The plan without counts; the very plan where it has none. */
  static LogicalPlan removed(LogicalPlan plan) {
    return plan.deterministic() ? plan : plan.transformUp(new Removed());
  }

  private static boolean isCount(Object expression) {
    return expression.getClass().getName().equals(COUNT);
  }

  private static final class Removed extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      LogicalPlan plan = (LogicalPlan) node;
      return plan.expressions().exists(new Counts()) || isTrue(plan);
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      LogicalPlan bare = ((LogicalPlan) node).transformExpressions(new Bare());
      return isTrue(bare) ? ((Filter) bare).child() : bare;
    }

    /** Whether a node keeps every row, for all that can be seen. */
    private static boolean isTrue(LogicalPlan plan) {
      if (!(plan instanceof Filter)) return false;
      Expression condition = ((Filter) plan).condition();
      LogicalPlan child = ((Filter) plan).child();
      if (condition instanceof Attribute && child instanceof Project) {
        java.util.List columns = ScalaInterop.asJava(((Project) child).projectList());
        for (int i = 0; i < columns.size(); i++) {
          if (!(columns.get(i) instanceof Alias)) continue;
          Alias alias = (Alias) columns.get(i);
          if (alias.exprId().equals(((Attribute) condition).exprId())) condition = alias.child();
        }
      }
      return condition.equals(Literal$.MODULE$.TrueLiteral());
    }
  }

  private static final class Counts extends scala.runtime.AbstractFunction1 {
    public Object apply(Object expression) {
      return Boolean.valueOf(((Expression) expression).exists(new IsCount()));
    }
  }

  private static final class IsCount extends scala.runtime.AbstractFunction1 {
    public Object apply(Object expression) {
      return Boolean.valueOf(isCount(expression));
    }
  }

  private static final class Bare extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return isCount(node);
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      return isCount(node) ? ((Expression) node).children().apply(0) : otherwise.apply(node);
    }
  }
}
