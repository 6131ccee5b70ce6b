package rewrite.jvm.source;

import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.predicate.ValueTypes;
import rewrite.jvm.shims.Values;
import scala.math.Ordering;

/** Catalyst values of one type, in Spark's order: whether one of them lies within bounds. */
final class SortedValues implements BoundsTest {
  private static final UTF8String REPLACED = UTF8String.fromString("\ufffd");
  private static final UTF8String AFTER_REPLACED = UTF8String.fromString("\ufffe");

  private final Ordering order;
  private final Object[] values;
  private final long[] longs;
  private final boolean hasUntold;

  /** `type` is that of the values, none of which is null. */
  SortedValues(DataType type, List given) {
    boolean counted = ValueTypes.isCounted(type);
    order = counted ? null : TypeUtils$.MODULE$.getInterpretedOrdering(type);
    values = counted ? null : given.toArray();
    longs = counted ? new long[given.size()] : null;
    boolean found = false;
    for (int i = 0; i < given.size(); i++) {
      Object value = given.get(i);
      if (counted) longs[i] = ((Number) value).longValue();
      found |= isUntold(value);
    }
    hasUntold = found;
    if (counted) {
      Arrays.sort(longs);
    } else {
      Arrays.sort(values, order);
    }
  }

  /** Whether no bounds tell of a value: NaN, and bytes that are no text, which logs and manifests
      keep as U+FFFD, or as the character after it where they cut a greatest text. */
  static boolean isUntold(Object value) {
    if (value instanceof UTF8String) {
      UTF8String text = (UTF8String) value;
      return !Values.isUtf8(text) || text.contains(REPLACED) || text.contains(AFTER_REPLACED);
    }
    return value instanceof Double && ((Double) value).isNaN()
        || value instanceof Float && ((Float) value).isNaN();
  }

  /** Whether no bounds tell of one of them. */
  boolean hasUntold() {
    return hasUntold;
  }

  /** How many there are. */
  int size() {
    return longs == null ? values.length : longs.length;
  }

  public boolean excludes(Object lower, Object upper) {
    if (hasUntold) return false;
    return below(lower) == upTo(upper);
  }

  /** How many are less than a value. */
  int below(Object value) {
    return longs == null ? count(widened(value), 0) : count(((Number) value).longValue(), 0);
  }

  /** How many are not greater than a value. */
  int upTo(Object value) {
    return longs == null ? count(widened(value), 1) : count(((Number) value).longValue(), 1);
  }

  /** How many compare to a bound as less than `limit`. */
  private int count(long bound, int limit) {
    int from = 0;
    int to = longs.length;
    while (from < to) {
      int middle = (from + to) >>> 1;
      if (Long.compare(longs[middle], bound) < limit) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    return from;
  }

  private int count(Object bound, int limit) {
    int from = 0;
    int to = values.length;
    while (from < to) {
      int middle = (from + to) >>> 1;
      if (order.compare(values[middle], bound) < limit) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    return from;
  }

  private Object widened(Object bound) {
    boolean widens = bound instanceof Float && values.length > 0 && values[0] instanceof Double;
    return widens ? Double.valueOf(((Float) bound).doubleValue()) : bound;
  }
}
