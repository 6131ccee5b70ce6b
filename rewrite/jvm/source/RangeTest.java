package rewrite.jvm.source;

import org.apache.spark.sql.types.DataType;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.predicate.ValueTypes;

/** Whether one of some ranges has a value within bounds. */
final class RangeTest implements BoundsTest {
  private final SortedValues from;
  private final SortedValues to;
  private final boolean isAny;

  RangeTest(KeyRanges ranges) {
    DataType type = ranges.type();
    from = ranges.from() == null ? null : new SortedValues(type, ranges.from());
    to = ranges.to() == null ? null : new SortedValues(type, ranges.to());
    // A range without an end has NaN in it, which is not within bounds.
    isAny =
        to == null && ValueTypes.isFloating(type) || from != null && from.hasUntold()
            || to != null && to.hasUntold();
  }

  public boolean excludes(Object lower, Object upper) {
    if (isAny) return false;
    if (from == null) return to.below(lower) == to.size();
    // They do not overlap, so those that end before the bounds are the first of those that begin
    // before their end.
    return from.upTo(upper) == (to == null ? 0 : to.below(lower));
  }
}
