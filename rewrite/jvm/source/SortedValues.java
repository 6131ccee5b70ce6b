package rewrite.jvm.source;

import java.util.Arrays;
import java.util.List;
import java.util.function.IntPredicate;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.predicate.ValueTypes;
import rewrite.jvm.shims.Values;
import scala.math.Ordering;

/** Catalyst values of one type, in Spark's order; tests whether one of them lies within bounds. */
final class SortedValues implements BoundsTest {
  private static final UTF8String REPLACED = UTF8String.fromString("\ufffd");
  private static final UTF8String AFTER_REPLACED = UTF8String.fromString("\ufffe");

  private final Ordering<Object> order;
  private final Object[] values;
  private final long[] longs; // instead of `values`, where they are integers
  private final boolean hasUncovered;

  /** `type` is that of the values, which are not null. */
  SortedValues(DataType type, List<?> values) {
    hasUncovered = values.stream().anyMatch(SortedValues::isUncovered);
    if (ValueTypes.isCounted(type)) {
      order = null;
      this.values = null;
      longs = values.stream().mapToLong(ValueTypes::toLong).sorted().toArray();
    } else {
      order = TypeUtils$.MODULE$.getInterpretedOrdering(type);
      this.values = values.toArray();
      longs = null;
      Arrays.sort(this.values, order);
    }
  }

  /** Whether bounds do not cover a value: NaN, and bytes that are no text, which logs and manifests
      store as U+FFFD, or as the character after it where they cut an upper bound. */
  static boolean isUncovered(Object value) {
    if (value instanceof UTF8String text) {
      return !Values.isUtf8(text) || text.contains(REPLACED) || text.contains(AFTER_REPLACED);
    }
    return value instanceof Double wide && wide.isNaN()
        || value instanceof Float narrow && narrow.isNaN();
  }

  /** Whether bounds do not cover one of them. */
  boolean hasUncovered() {
    return hasUncovered;
  }

  int size() {
    return longs == null ? values.length : longs.length;
  }

  @Override public boolean excludes(Object lower, Object upper) {
    return !hasUncovered && countBelow(lower) == countUpTo(upper);
  }

  /** Returns how many are less than a bound. */
  int countBelow(Object bound) {
    return count(bound, 0);
  }

  /** Returns how many are not greater than a bound. */
  int countUpTo(Object bound) {
    return count(bound, 1);
  }

  /** Returns how many compare to a bound as less than `limit`. */
  private int count(Object bound, int limit) {
    if (longs == null) {
      boolean isWide = values.length > 0 && values[0] instanceof Double;
      Object other = isWide && bound instanceof Float narrow ? narrow.doubleValue() : bound;
      return search(i -> order.compare(values[i], other) < limit);
    }
    long other = ValueTypes.toLong(bound);
    return search(i -> Long.compare(longs[i], other) < limit);
  }

  private int search(IntPredicate isBefore) {
    int from = 0;
    int to = size();
    while (from < to) {
      int middle = (from + to) >>> 1;
      if (isBefore.test(middle)) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    return from;
  }
}
