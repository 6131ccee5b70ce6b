package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.types.DataType;

/**
 * A condition that an index can evaluate. {@link ConditionWriter} writes it into a message.
 *
 * <p>A `dimension` names the plan that provided the values; it is empty if they are the query's
 * own.
 */
sealed interface Condition {
  /** No row matches. */
  Condition NOTHING = new AnyOf(List.of());

  record AllOf(List<Condition> operands) implements Condition {}

  record AnyOf(List<Condition> operands) implements Condition {}

  record Negation(Condition operand) implements Condition {}

  /** Implies `holds` on rows where it is true, and `fails` where it is false. */
  record Weak(Condition holds, Condition fails) implements Condition {}

  /** Says nothing about rows; explain shows the reason. */
  record Unknown(String reason) implements Condition {}

  record NullTest(ColumnRef column) implements Condition {}

  /** Compares a column with a value; `dimension` is null if no keys are involved. */
  record Comparison(ColumnRef column, String op, Literal literal, String dimension)
      implements Condition {
    Comparison(ColumnRef column, String op, Literal literal) {
      this(column, op, literal, null);
    }
  }

  /** The column has one of these values; `hasNull`: the query's own list has a null, too. */
  record ValueList(
      ColumnRef column, DataType type, List<?> values, boolean hasNull, String dimension)
      implements Condition {}

  /** The column starts with, ends with or contains a text, or contains it in any case. */
  record TextMatch(String op, ColumnRef column, Literal text) implements Condition {}

  /** The column is an array that contains one of these values. */
  record Elements(ColumnRef column, DataType type, List<?> values) implements Condition {}

  /** The columns have one of these tuples; `values` has a list for each column, row by row. */
  record TupleList(
      List<ColumnRef> columns, List<DataType> types, List<List<Object>> values, String dimension)
      implements Condition {}

  /** Return the condition that the column is within one of some ranges. */
  static Condition within(ColumnRef column, DataType type, List<Range> ranges, String dimension) {
    List<Condition> operands = new ArrayList<>();
    List<Object> values = new ArrayList<>();
    for (Range range : ranges) {
      if (range.isSingle()) {
        values.add(range.min());
      } else {
        operands.add(within(column, type, range, dimension));
      }
    }
    if (!values.isEmpty()) operands.add(new ValueList(column, type, values, false, dimension));
    return operands.size() == 1 ? operands.get(0) : new AnyOf(operands);
  }

  private static Condition within(ColumnRef column, DataType type, Range range, String dimension) {
    if (range.equals(Range.ALL)) return new Negation(new NullTest(column));
    List<Condition> ends = new ArrayList<>();
    if (range.min() != null) {
      ends.add(new Comparison(column, ">=", new Literal(range.min(), type), dimension));
    }
    if (range.max() != null) {
      ends.add(new Comparison(column, "<=", new Literal(range.max(), type), dimension));
    }
    return new AllOf(ends);
  }
}
