package rewrite.jvm.predicate;

import java.math.BigDecimal;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.List;
import java.util.Objects;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.util.DateTimeUtils$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.Decimal$;
import org.apache.spark.sql.types.DecimalType$;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Finds the values of a column from the result of a cast or function: if `date(ts)` is a day, `ts`
 * is within that day.
 *
 * <p>It may allow values with another result, and never misses one with this result.
 */
public final class Inversion {
  /** About 270,000 years. Timestamps end later, but it is unknown when later days begin. */
  private static final int MAX_DAYS = 100000000;

  private final Expression column;
  private final boolean ofDays;
  private final ZoneId zone;
  private final Monotonic function;

  private Inversion(Cast cast, ZoneId zone) {
    this.column = cast.child();
    this.ofDays = column.dataType() instanceof DateType;
    this.zone = zone;
    this.function = null;
  }

  private Inversion(Monotonic function) {
    this.column = function.column();
    this.ofDays = false;
    this.zone = null;
    this.function = function;
  }

  /** Return the column that a join key is computed from; it determines the key, nulls included. */
  public static Expression column(Expression key) {
    if (Conditions.coalesceDefault(key) != null) return Casts.bare(key.children().head());
    Inversion inversion = of(key);
    return Casts.bare(inversion == null ? key : inversion.column());
  }

  /** Return the inversion of an expression, or null. */
  public static Inversion of(Expression e) {
    Expression bare = Casts.bare(e);
    Inversion inversion = bare instanceof Cast cast ? of(cast) : null;
    if (inversion != null || Conditions.path(bare) != null) return inversion;
    Monotonic function = Monotonic.of(e);
    // Bounds do not include NaN.
    return function == null || ValueTypes.isFloating(function.column().dataType())
        ? null
        : new Inversion(function);
  }

  private static Inversion of(Cast cast) {
    DataType from = cast.child().dataType();
    DataType to = cast.dataType();
    DataType time = to instanceof DateType ? from : from instanceof DateType ? to : null;
    if (time instanceof TimestampNTZType) return new Inversion(cast, ZoneOffset.UTC);
    if (time instanceof TimestampType) return new Inversion(cast, cast.zoneId());
    boolean isExact =
        to instanceof DecimalType more && from instanceof DecimalType less && widens(less, more)
            || to instanceof DecimalType decimal && from instanceof IntegralType
                && widens(DecimalType$.MODULE$.forType(from), decimal)
            || to.equals(StringType$.MODULE$) && from instanceof IntegralType
            || to instanceof DoubleType && from instanceof IntegralType
                && !(from instanceof LongType);
    return isExact ? new Inversion(cast, null) : null;
  }

  private static boolean widens(DecimalType less, DecimalType more) {
    return more.scale() >= less.scale()
        && more.precision() - more.scale() >= less.precision() - less.scale();
  }

  public Expression column() {
    return column;
  }

  /** Whether a result stands for a range of values. */
  public boolean givesRanges() {
    return zone != null || function != null;
  }

  /** Return the values of the column, in its own type, that have one of some results. */
  public List<Object> values(List<Object> results) {
    return results.stream().map(this::value).filter(Objects::nonNull).toList();
  }

  /** Return the ranges that hold all values with one of some results. */
  public KeyRanges ranges(List<Object> results) {
    if (function != null) return ranges(KeyRanges.of(function.resultType(), results, results));
    return KeyRanges.of(column.dataType(), ends(results, false), ends(results, true));
  }

  /** Return the ranges that hold all values with results in some ranges. */
  public KeyRanges ranges(KeyRanges results) {
    if (function != null) return close(function.ranges(results));
    return KeyRanges.of(column.dataType(), ends(results.from(), false), ends(results.to(), true));
  }

  /** Replace open ends by the min and max of the type; null stands for all values. */
  private KeyRanges close(List<Range> ranges) {
    DataType type = column.dataType();
    Object min = ValueTypes.value(type, ValueTypes.minPlace(type));
    Object max = ValueTypes.value(type, ValueTypes.maxPlace(type));
    List<Range> open = ranges == null ? List.of(Range.ALL) : ranges;
    return KeyRanges.of(
        type, open.stream().map(range -> range.min() == null ? min : range.min()).toList(),
        open.stream().map(range -> range.max() == null ? max : range.max()).toList());
  }

  /** Return the min, or the max, of the values with each result. */
  private List<Object> ends(List<Object> results, boolean isMax) {
    if (results == null) return null;
    return results.stream().map(result -> end(ValueTypes.toLong(result), isMax)).toList();
  }

  private Object end(long result, boolean isMax) {
    if (ofDays) return day(result, isMax);
    return time(result, isMax);
  }

  private long time(long day, boolean isMax) {
    if (isMax && day >= MAX_DAYS) return Long.MAX_VALUE;
    if (!isMax && day <= -MAX_DAYS) return Long.MIN_VALUE;
    long first = start(day);
    long last = start(day + 1) - 1;
    // If clocks are put back over midnight, a part of the day before comes twice.
    boolean changes = Monotonic.changes(zone, first - ValueTypes.DAY, last + ValueTypes.DAY);
    long margin = changes ? ValueTypes.DAY : 0;
    return isMax ? last + margin : first - margin;
  }

  /** Return a day; one that the zone leaves out begins with the next one. */
  private int day(long micros, boolean isMax) {
    int day = DateTimeUtils$.MODULE$.microsToDays(micros, zone);
    int margin = Monotonic.changes(zone, micros - ValueTypes.DAY, micros + ValueTypes.DAY) ? 1 : 0;
    return isMax ? day + margin : day - margin;
  }

  /** Return when a day since 1970 begins, in microseconds. */
  private long start(long day) {
    long within = Math.max(-MAX_DAYS, Math.min(MAX_DAYS, day));
    return DateTimeUtils$.MODULE$.daysToMicros((int) within, zone);
  }

  /** Return the only value with a result, or null. */
  private Object value(Object result) {
    try {
      BigDecimal number = number(result);
      if (number == null) return null;
      if (column.dataType() instanceof DecimalType type) {
        BigDecimal scaled = number.setScale(type.scale());
        return scaled.precision() > type.precision()
            ? null
            : Decimal$.MODULE$.apply(scaled, type.precision(), type.scale());
      }
      long exact = number.longValueExact();
      Object value = ValueTypes.integer(column.dataType(), exact);
      return ValueTypes.toLong(value) == exact ? value : null;
    } catch (ArithmeticException inexact) {
      return null; // the column's type has fewer digits
    }
  }

  /** Return the number that a result stands for; null if no number is cast to it, as to "007". */
  private static BigDecimal number(Object result) {
    if (result instanceof Decimal decimal) return decimal.toJavaBigDecimal();
    if (result instanceof UTF8String text) return integer(text.toString());
    double number = (Double) result;
    boolean isInteger = number == Math.rint(number) && !Double.isInfinite(number); // not NaN
    return isInteger ? new BigDecimal(number) : null;
  }

  private static BigDecimal integer(String text) {
    try {
      long number = Long.parseLong(text);
      return Long.toString(number).equals(text) ? BigDecimal.valueOf(number) : null;
    } catch (NumberFormatException other) {
      return null;
    }
  }
}
