package rewrite.jvm.predicate;

import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DataType;
import rewrite.jvm.bridge.ScalaInterop;

/** The condition that some columns have one of some tuples without nulls. The columns are
    expressions; some may be no columns of the table. */
public record Tuples(List<Expression> columns, List<InternalRow> rows, String dimension) {
  /** Takes the keys of a join, where a tuple with a null matches nothing. */
  public static Tuples ofKeys(
      List<Expression> columns, Collection<InternalRow> rows, String dimension) {
    List<InternalRow> valid = rows.stream().filter(row -> row != null && !row.anyNull()).toList();
    return new Tuples(columns, valid, dimension);
  }

  /**
   * Return what `(a, b) IN ((1, 2), (3, 4))` and `(a, b) = (1, 2)` imply; null for any other
   * condition.
   *
   * <p>Structs with nulls in the same places are equal, so tuples with a null are not supported.
   * The negation of the condition is not the negation of this.
   */
  static Tuples of(Expression condition) {
    if (condition.children().isEmpty()) return null;
    if (!(condition.children().head() instanceof CreateNamedStruct struct)) return null;
    List<Object> values = ListedValues.in(condition);
    if (values == null && condition instanceof EqualTo equal
        && equal.right() instanceof Literal literal) {
      values = Collections.singletonList(literal.value());
    }
    if (values == null) return null;
    List<InternalRow> rows =
        values.stream().filter(Objects::nonNull).map(InternalRow.class::cast).toList();
    Tuples tuples = ofKeys(ScalaInterop.asJava(struct.valExprs()), rows, "");
    return tuples.rows.size() < rows.size() ? null : tuples;
  }

  /** Return the values of a column, row by row. */
  List<Object> values(int column) {
    DataType type = columns.get(column).dataType();
    return rows.stream().map(row -> row.get(column, type)).toList();
  }
}
