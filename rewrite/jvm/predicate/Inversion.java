package rewrite.jvm.predicate;

import java.math.BigDecimal;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.util.DateTimeUtils$;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.Decimal$;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A cast or function whose outcome says what the column was, or between which values: `date(ts)` is
 * a day, and the column of any such row is within that day.
 *
 * <p>May allow values that give another outcome, and never leaves one out that gives this one.
 */
public final class Inversion {
  /** About 270,000 years. Timestamps end later, and where days further off begin is not known. */
  private static final int MOST_DAYS = 100000000;

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

  /** The column that a key of a join is made of: it decides what the key is, nulls included. */
  public static Expression column(Expression key) {
    if (Conditions.instead(key) != null) return Casts.bare(key.children().apply(0));
    Inversion inversion = of(key);
    return Casts.bare(inversion == null ? key : inversion.column());
  }

  /** That of an expression; null: it is none. */
  public static Inversion of(Expression e) {
    Expression bare = Casts.bare(e);
    Inversion cast = bare instanceof Cast ? of((Cast) bare) : null;
    if (cast != null || Conditions.path(bare) != null) return cast;
    Monotonic function = Monotonic.of(e);
    // NaN is within no bounds.
    boolean isCounted = function != null && ValueTypes.isCounted(function.column().dataType());
    return isCounted ? new Inversion(function) : null;
  }

  private static Inversion of(Cast cast) {
    DataType from = cast.child().dataType();
    DataType to = cast.dataType();
    DataType time = to instanceof DateType ? from : from instanceof DateType ? to : null;
    if (time instanceof TimestampNTZType) return new Inversion(cast, ZoneOffset.UTC);
    if (time instanceof TimestampType) return new Inversion(cast, cast.zoneId());
    boolean isExact =
        to instanceof DecimalType && from instanceof DecimalType && widens(from, to)
            || to instanceof DecimalType && from instanceof IntegralType
            || to.equals(StringType$.MODULE$) && from instanceof IntegralType
            || to instanceof DoubleType && from instanceof IntegralType
                && !(from instanceof LongType);
    return isExact ? new Inversion(cast, null) : null;
  }

  private static boolean widens(DataType from, DataType to) {
    DecimalType less = (DecimalType) from;
    DecimalType more = (DecimalType) to;
    return more.scale() >= less.scale()
        && more.precision() - more.scale() >= less.precision() - less.scale();
  }

  /** The column that is cast. */
  public Expression column() {
    return column;
  }

  /** Whether an outcome is of many values, of one range. */
  public boolean givesRanges() {
    return zone != null || function != null;
  }

  /** The values of the column, in its own type, that have one of some outcomes. */
  public List values(List outcomes) {
    List out = new ArrayList();
    for (int i = 0; i < outcomes.size(); i++) {
      Object value = value(outcomes.get(i));
      if (value != null) out.add(value);
    }
    return out;
  }

  /** The ranges that hold all values which have one of some outcomes. */
  public KeyRanges ranges(List outcomes) {
    if (function != null) return ranges(KeyRanges.of(function.outcomes(), outcomes, outcomes));
    return KeyRanges.of(column.dataType(), ends(outcomes, false), ends(outcomes, true));
  }

  /** The ranges that hold all values with outcomes in some ranges. */
  public KeyRanges ranges(KeyRanges outcomes) {
    if (function != null) return pairs(function.ranges(outcomes));
    return KeyRanges.of(
        column.dataType(), ends(outcomes.from(), false), ends(outcomes.to(), true));
  }

  /** Pairs of values, null for the first and the last that there are; null: all values. */
  private KeyRanges pairs(List pairs) {
    DataType type = column.dataType();
    List from = new ArrayList();
    List to = new ArrayList();
    for (int i = 0; i < (pairs == null ? 1 : pairs.size()); i++) {
      Object[] pair = pairs == null ? new Object[2] : (Object[]) pairs.get(i);
      from.add(pair[0] == null ? ValueTypes.value(type, ValueTypes.least(type)) : pair[0]);
      to.add(pair[1] == null ? ValueTypes.value(type, ValueTypes.greatest(type)) : pair[1]);
    }
    return KeyRanges.of(type, from, to);
  }

  /** The least, or the greatest, value that has each outcome. */
  private List ends(List outcomes, boolean greatest) {
    if (outcomes == null) return null;
    List out = new ArrayList();
    for (int i = 0; i < outcomes.size(); i++) {
      long outcome = ((Number) outcomes.get(i)).longValue();
      out.add(ofDays ? day(outcome, greatest) : time(outcome, greatest));
    }
    return out;
  }

  private Object time(long day, boolean greatest) {
    if (greatest && day >= MOST_DAYS) return Long.valueOf(Long.MAX_VALUE);
    if (!greatest && day <= -MOST_DAYS) return Long.valueOf(Long.MIN_VALUE);
    long first = start(day);
    long last = start(day + 1) - 1;
    // Clocks that are put back over midnight have the day before once more.
    boolean changes = Monotonic.changes(zone, first - ValueTypes.DAY, last + ValueTypes.DAY);
    long margin = changes ? ValueTypes.DAY : 0;
    return Long.valueOf(greatest ? last + margin : first - margin);
  }

  /** A day that a zone leaves out begins with the next one. */
  private Object day(long micros, boolean greatest) {
    int day = DateTimeUtils$.MODULE$.microsToDays(micros, zone);
    int margin = Monotonic.changes(zone, micros - ValueTypes.DAY, micros + ValueTypes.DAY) ? 1 : 0;
    return Integer.valueOf(greatest ? day + margin : day - margin);
  }

  /** When a day since 1970 begins, in microseconds. */
  private long start(long day) {
    long within = Math.max(-MOST_DAYS, Math.min(MOST_DAYS, day));
    return DateTimeUtils$.MODULE$.daysToMicros((int) within, zone);
  }

  /** The integer that is written so; null: there is none, as of 007. */
  private static BigDecimal number(String text) {
    try {
      long number = Long.parseLong(text);
      return Long.toString(number).equals(text) ? BigDecimal.valueOf(number) : null;
    } catch (NumberFormatException none) {
      return null;
    }
  }

  /** The only value that has an outcome; null: there is none. */
  private Object value(Object outcome) {
    DataType type = column.dataType();
    BigDecimal number;
    if (outcome instanceof Decimal) {
      number = ((Decimal) outcome).toJavaBigDecimal();
    } else if (outcome instanceof UTF8String) {
      number = number(outcome.toString());
      if (number == null) return null;
    } else {
      double given = ((Double) outcome).doubleValue();
      if (given != Math.rint(given) || Double.isInfinite(given)) return null; // nor NaN
      number = new BigDecimal(given);
    }
    try {
      if (type instanceof DecimalType) {
        DecimalType own = (DecimalType) type;
        BigDecimal scaled = number.setScale(own.scale());
        return scaled.precision() > own.precision()
            ? null
            : Decimal$.MODULE$.apply(scaled, own.precision(), own.scale());
      }
      return type instanceof LongType ? (Object) Long.valueOf(number.longValueExact())
          : type instanceof ShortType ? (Object) Short.valueOf(number.shortValueExact())
          : type instanceof ByteType ? (Object) Byte.valueOf(number.byteValueExact())
          : (Object) Integer.valueOf(number.intValueExact());
    } catch (ArithmeticException other) {
      return null; // has digits that the column cannot have
    }
  }
}
