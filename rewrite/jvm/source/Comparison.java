package rewrite.jvm.source;

import java.util.Collections;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import rewrite.jvm.predicate.ValueTypes;

/** A column compared with a value, as bounds can answer it. */
final class Comparison implements BoundsTest {
  private final Expression column;
  private final boolean below;
  private final boolean above;
  private final boolean equal;
  private final SortedValues value;

  private Comparison(
      Expression column, Literal value, boolean below, boolean above, boolean equal) {
    this.column = column;
    this.below = below;
    this.above = above;
    this.equal = equal;
    this.value =
        value.value() == null
            ? null
            : new SortedValues(value.dataType(), Collections.singletonList(value.value()));
  }

  /** That of a condition; null: it is none, or one that bounds cannot answer. */
  static Comparison of(Expression condition) {
    if (!(condition instanceof BinaryComparison)) return null;
    boolean mirrored = condition.children().apply(0) instanceof Literal;
    Expression column = condition.children().apply(mirrored ? 1 : 0);
    Expression other = condition.children().apply(mirrored ? 0 : 1);
    if (!(other instanceof Literal)) return null;
    boolean less = condition instanceof LessThan || condition instanceof LessThanOrEqual;
    boolean greater = condition instanceof GreaterThan || condition instanceof GreaterThanOrEqual;
    boolean equal = condition instanceof EqualTo;
    if (!less && !greater && !equal) return null;
    boolean above = mirrored ? less : greater;
    if (above && ValueTypes.isFloating(column.dataType())) return null;
    return new Comparison(
        column, (Literal) other, mirrored ? greater : less, above,
        equal || condition instanceof LessThanOrEqual || condition instanceof GreaterThanOrEqual);
  }

  Expression column() {
    return column;
  }

  /** Whether it is proven that all values from `lower` to `upper`, both included, compare so. */
  boolean includes(Object lower, Object upper) {
    if (value == null || value.hasUntold()) return false;
    if (below) return (equal ? value.below(upper) : value.upTo(upper)) == 0;
    if (above) return (equal ? value.upTo(lower) : value.below(lower)) == 1;
    return value.below(upper) == 0 && value.upTo(lower) == 1;
  }

  public boolean excludes(Object lower, Object upper) {
    if (value == null) return true; // nothing compares with null
    if (value.hasUntold()) return false;
    // Of a single value: whether it is less than a bound, or not greater.
    boolean reaches;
    if (below) {
      reaches = equal ? value.below(lower) == 0 : value.upTo(lower) == 0;
    } else if (above) {
      reaches = equal ? value.upTo(upper) == 1 : value.below(upper) == 1;
    } else {
      reaches = value.below(lower) == 0 && value.upTo(upper) == 1;
    }
    return !reaches;
  }
}
