package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import rewrite.jvm.bridge.ScalaInterop;

/** The values of an IN list of the query's own. Delta compares only their min and max; Iceberg
    compares each, but ignores lists of more than 200. */
public final class ListedValues implements KeyValues {
  private final Expression column;
  private final List values;

  private ListedValues(Expression column, List values) {
    this.column = column;
    this.values = values;
  }

  /** Those of a condition; null: it is no IN of two values or more. */
  public static ListedValues of(Expression condition) {
    List values = in(condition);
    if (values == null) return null;
    values.removeAll(Collections.singleton(null)); // which matches nothing
    Expression column = condition.children().apply(0);
    return values.size() < 2 ? null : new ListedValues(column, values);
  }

  /** The values of an IN, nulls among them; null: the condition is none, or not of values. */
  public static List in(Expression condition) {
    if (condition instanceof InSet) return ScalaInterop.list(((InSet) condition).hset());
    if (!(condition instanceof In)) return null;
    List values = new ArrayList();
    List list = ScalaInterop.list(((In) condition).list());
    for (int i = 0; i < list.size(); i++) {
      if (!(list.get(i) instanceof Literal)) return null;
      values.add(((Literal) list.get(i)).value());
    }
    return values;
  }

  public Expression column() {
    return column;
  }

  public List values() {
    return values;
  }

  public KeyRanges ranges() {
    return null;
  }

  /** None: they are in the query. */
  public String dimension() {
    return "";
  }
}
