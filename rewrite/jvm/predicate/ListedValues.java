package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import rewrite.jvm.bridge.ScalaInterop;

/** The values of an IN of the query's own. Table formats look at the least and the greatest of
    them, or at none where they are many. */
public final class ListedValues implements KeyValues {
  private final Expression column;
  private final List values;

  private ListedValues(Expression column, List values) {
    this.column = column;
    this.values = values;
  }

  /** Those of a condition; null: it is no IN of two values or more. */
  public static ListedValues of(Expression condition) {
    List values = new ArrayList();
    Expression column;
    if (condition instanceof InSet) {
      column = ((InSet) condition).child();
      values.addAll(ScalaInterop.list(((InSet) condition).hset()));
    } else if (condition instanceof In) {
      column = ((In) condition).value();
      List list = ScalaInterop.list(((In) condition).list());
      for (int i = 0; i < list.size(); i++) {
        if (!(list.get(i) instanceof Literal)) return null;
        values.add(((Literal) list.get(i)).value());
      }
    } else {
      return null;
    }
    values.removeAll(Collections.singleton(null)); // which matches nothing
    return values.size() < 2 ? null : new ListedValues(column, values);
  }

  public Expression column() {
    return column;
  }

  public List values() {
    return values;
  }

  /** None: they are in the query. */
  public String dimension() {
    return "";
  }
}
