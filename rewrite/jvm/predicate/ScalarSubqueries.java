package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.execution.ScalarSubquery;
import rewrite.jvm.shims.Values;

/** Conditions with subqueries of one value, as in `load = (SELECT max(load) FROM loads)`: the value
    is there when the scan runs. */
public final class ScalarSubqueries {
  private ScalarSubqueries() {}

  /** Those of some conditions that have one. */
  public static List of(List conditions) {
    List out = new ArrayList();
    for (int i = 0; i < conditions.size(); i++) {
      if (((Expression) conditions.get(i)).exists(new IsSubquery())) out.add(conditions.get(i));
    }
    return out;
  }

  /** The conditions with the values of the subqueries in their place. Spark has them by the time it
      lists the files of a scan; else this waits for them, as the scan would. */
  public static List resolved(List conditions) {
    List out = new ArrayList();
    for (int i = 0; i < conditions.size(); i++) {
      Expression condition = (Expression) conditions.get(i);
      out.add(condition.transformUp(new ByValue()).transformUp(new Constant()));
    }
    return out;
  }

  private static final class IsSubquery extends scala.runtime.AbstractFunction1 {
    public Object apply(Object expression) {
      return Boolean.valueOf(expression instanceof ScalarSubquery);
    }
  }

  /** What a value is made into, as Spark evaluates it for each row: a cast of a date to the
      column's timestamp, or a field, as Spark makes one subquery of several on the same table. */
  private static final class Constant extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return !(node instanceof Literal) && ((Expression) node).foldable();
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      Expression constant = (Expression) node;
      try {
        return new Literal(constant.eval(null), constant.dataType());
      } catch (RuntimeException failed) {
        return node; // the query fails of it, if it comes to that
      }
    }
  }

  private static final class ByValue extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object node) {
      return node instanceof ScalarSubquery;
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      ScalarSubquery subquery = (ScalarSubquery) node;
      subquery.updateResult();
      return Values.literal(subquery);
    }
  }
}
