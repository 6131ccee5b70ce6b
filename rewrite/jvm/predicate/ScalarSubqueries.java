package rewrite.jvm.predicate;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.execution.ReusedSubqueryExec;
import org.apache.spark.sql.execution.ScalarSubquery;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import rewrite.jvm.shims.Values;

/** Replaces scalar subqueries, as in `load = (SELECT max(load) FROM loads)`, by their values once
    the scan runs. */
public final class ScalarSubqueries {
  private ScalarSubqueries() {}

  /** Return the conditions that have a scalar subquery. */
  public static List<Expression> of(List<Expression> conditions) {
    return conditions.stream()
        .filter(each -> each.exists(ScalarSubquery.class::isInstance))
        .toList();
  }

  /** Whether Spark may still replace a subquery by an equal one. With adaptive execution it has done
      that before the rules see a stage. */
  public static boolean isReplaced(Expression e) {
    return e.exists(
        each -> each instanceof ScalarSubquery subquery
            && !(subquery.plan() instanceof ReusedSubqueryExec)
            && !(subquery.plan().children().head() instanceof AdaptiveSparkPlanExec));
  }

  /** Return a condition with the values in the place of subqueries. Spark knows the values when it
      lists the files of a scan; otherwise this waits for them, as the scan would. `running` are the
      subqueries of the query: another computation may give another value than the one that rows are
      filtered by. Also evaluates constants: the cast of a value to the column's type, or a field of
      it, because Spark merges several subqueries on one table. */
  public static Expression resolve(Expression e, Map<ExprId, ScalarSubquery> running) {
    if (e instanceof ScalarSubquery planned) {
      ScalarSubquery subquery = isReplaced(planned) ? running.get(planned.exprId()) : planned;
      if (subquery == null) return planned; // no condition on it prunes
      subquery.updateResult();
      return Values.literal(subquery);
    }
    Expression resolved = e.mapChildren(child -> resolve(child, running));
    if (resolved instanceof Literal || !resolved.foldable()) return resolved;
    try {
      return new Literal(resolved.eval(null), resolved.dataType());
    } catch (RuntimeException failed) {
      return resolved; // the query fails, too, if it evaluates this
    }
  }
}
