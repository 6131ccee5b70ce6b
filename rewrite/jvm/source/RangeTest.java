package rewrite.jvm.source;

import org.apache.spark.sql.types.DataType;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.predicate.ValueTypes;

/** Tests whether one of some ranges has a value within bounds. */
final class RangeTest implements BoundsTest {
  private final SortedValues from; // null: all ranges begin with the smallest value
  private final SortedValues to; // null: all ranges end with the largest
  private final boolean hasUncovered;

  RangeTest(KeyRanges ranges) {
    DataType type = ranges.type();
    from = ranges.from() == null ? null : new SortedValues(type, ranges.from());
    to = ranges.to() == null ? null : new SortedValues(type, ranges.to());
    // A range without an end contains NaN, which bounds do not cover.
    hasUncovered =
        to == null && ValueTypes.isFloating(type) || from != null && from.hasUncovered()
            || to != null && to.hasUncovered();
  }

  @Override public boolean excludes(Object lower, Object upper) {
    if (hasUncovered) return false;
    if (from == null) return to.countBelow(lower) == to.size();
    // Ranges do not overlap: those that end before the bounds are the first of those that begin
    // before the bounds end.
    return from.countUpTo(upper) == (to == null ? 0 : to.countBelow(lower));
  }
}
