package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import rewrite.jvm.bridge.ScalaInterop;

/** An IN list of the query. Delta compares only its min and max; Iceberg compares each value, but
    ignores lists with more than 200. */
public final class ListedValues {
  private ListedValues() {}

  /** Return the list of a condition; null for anything but an IN of two or more values. */
  public static KeyValues of(Expression condition) {
    List<Object> values = in(condition);
    if (values == null) return null;
    values.removeIf(Objects::isNull); // null matches nothing
    Expression column = condition.children().head();
    return values.size() < 2 ? null : new KeyValues.Of(column, values, null, "");
  }

  /** Return the values of an IN, nulls included; null if it is another condition, or has other
      expressions than literals. */
  public static List<Object> in(Expression condition) {
    if (condition instanceof InSet set) return ScalaInterop.asJava(set.hset());
    if (!(condition instanceof In in)) return null;
    List<Object> values = new ArrayList<>();
    for (Expression value : ScalaInterop.asJava(in.list())) {
      if (!(value instanceof Literal literal)) return null;
      values.add(literal.value());
    }
    return values;
  }
}
