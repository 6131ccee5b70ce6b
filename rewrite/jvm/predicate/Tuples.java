package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DataType;
import rewrite.jvm.bridge.ScalaInterop;

/** "These columns of a row are one of these tuples", in none of which is a null. */
public final class Tuples {
  private final List columns;
  private final List rows;
  private final String dimension;

  /** Of keys of a join, where a null matches nothing; `rows` may have some. */
  public Tuples(List columns, Collection rows, String dimension) {
    this.columns = columns;
    this.rows = new ArrayList(rows.size());
    this.dimension = dimension;
    for (Iterator each = rows.iterator(); each.hasNext(); ) {
      InternalRow row = (InternalRow) each.next();
      if (row != null && !row.anyNull()) this.rows.add(row);
    }
  }

  /**
   * What `(a, b) IN ((1, 2), (3, 4))` and `(a, b) = (1, 2)` imply; null: a condition is neither.
   *
   * <p>Structs are equal where both have a null, and never equal to null: so not of tuples with a
   * null, and what holds where the condition is false is not known from this.
   */
  static Tuples of(Expression condition) {
    if (condition.children().isEmpty()) return null;
    Object struct = condition.children().apply(0);
    if (!(struct instanceof CreateNamedStruct)) return null;
    List values = ListedValues.in(condition);
    if (values == null && condition instanceof EqualTo) {
      Expression other = ((EqualTo) condition).right();
      if (other instanceof Literal) values = Collections.singletonList(((Literal) other).value());
    }
    if (values == null) return null;
    int listed = 0;
    for (int i = 0; i < values.size(); i++) {
      if (values.get(i) != null) listed++;
    }
    List columns = ScalaInterop.list(((CreateNamedStruct) struct).valExprs());
    Tuples out = new Tuples(columns, values, "");
    return out.rows.size() < listed ? null : out;
  }

  /** Expressions, of which some may be no columns. */
  public List columns() {
    return columns;
  }

  public List rows() {
    return rows;
  }

  String dimension() {
    return dimension;
  }

  /** The values of one of the columns, row by row. */
  List values(int column) {
    DataType type = ((Expression) columns.get(column)).dataType();
    List out = new ArrayList(rows.size());
    for (int i = 0; i < rows.size(); i++) {
      out.add(((InternalRow) rows.get(i)).get(column, type));
    }
    return out;
  }
}
