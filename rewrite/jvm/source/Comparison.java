package rewrite.jvm.source;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import rewrite.jvm.predicate.ValueTypes;

/** A column that is less than (`below`), greater than (`above`) or `equal` to a value. */
record Comparison(
    Expression column, SortedValues value, boolean below, boolean above, boolean equal)
    implements BoundsTest {

  /** Returns that of a condition; null if bounds cannot decide it. */
  static Comparison of(Expression condition) {
    if (!(condition instanceof BinaryComparison)) return null;
    boolean mirrored = condition.children().apply(0) instanceof Literal;
    Expression column = condition.children().apply(mirrored ? 1 : 0);
    if (!(condition.children().apply(mirrored ? 0 : 1) instanceof Literal literal)) return null;
    boolean less = condition instanceof LessThan || condition instanceof LessThanOrEqual;
    boolean greater = condition instanceof GreaterThan || condition instanceof GreaterThanOrEqual;
    boolean equal = condition instanceof EqualTo;
    if (!less && !greater && !equal) return null;
    boolean above = mirrored ? less : greater;
    if (above && ValueTypes.isFloating(column.dataType())) return null; // NaN is above all
    SortedValues value =
        literal.value() == null
            ? null
            : new SortedValues(literal.dataType(), List.of(literal.value()));
    return new Comparison(
        column, value, mirrored ? greater : less, above,
        equal || condition instanceof LessThanOrEqual || condition instanceof GreaterThanOrEqual);
  }

  /** Whether all values from `lower` to `upper`, both included, compare so. */
  boolean includes(Object lower, Object upper) {
    if (value == null || value.hasUncovered()) return false;
    if (below) return isReachedBy(upper);
    if (above) return isReachedBy(lower);
    return value.countBelow(upper) == 0 && value.countUpTo(lower) == 1;
  }

  @Override public boolean excludes(Object lower, Object upper) {
    if (value == null) return true; // nothing compares with null
    if (value.hasUncovered()) return false;
    if (below) return !isReachedBy(lower);
    if (above) return !isReachedBy(upper);
    return value.countBelow(lower) != 0 || value.countUpTo(upper) != 1;
  }

  /** Whether a single bound is below or above the value, or equal to it. */
  private boolean isReachedBy(Object bound) {
    int before = below == equal ? value.countBelow(bound) : value.countUpTo(bound);
    return before == (below ? 0 : 1);
  }
}
