package rewrite.jvm.predicate;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.execution.ScalarSubquery;
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

  /** Return a condition with the values in the place of subqueries. Spark knows the values when it
      lists the files of a scan; otherwise this waits for them, as the scan would. Also evaluates
      constants: the cast of a value to the column's type, or a field of it, because Spark merges
      several subqueries on one table. */
  public static Expression resolve(Expression e) {
    if (e instanceof ScalarSubquery subquery) {
      subquery.updateResult();
      return Values.literal(subquery);
    }
    Expression resolved = e.mapChildren(ScalarSubqueries::resolve);
    if (resolved instanceof Literal || !resolved.foldable()) return resolved;
    try {
      return new Literal(resolved.eval(null), resolved.dataType());
    } catch (RuntimeException failed) {
      return resolved; // the query fails, too, if it evaluates this
    }
  }
}
