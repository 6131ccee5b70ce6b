package rewrite.jvm.predicate;

import java.math.BigInteger;
import java.time.ZoneId;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Add;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.DateAdd;
import org.apache.spark.sql.catalyst.expressions.DateDiff;
import org.apache.spark.sql.catalyst.expressions.DateSub;
import org.apache.spark.sql.catalyst.expressions.Divide;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.IntegralDivide;
import org.apache.spark.sql.catalyst.expressions.LastDay;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Multiply;
import org.apache.spark.sql.catalyst.expressions.Subtract;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import org.apache.spark.sql.catalyst.expressions.ToUnixTimestamp;
import org.apache.spark.sql.catalyst.expressions.TruncDate;
import org.apache.spark.sql.catalyst.expressions.TruncTimestamp;
import org.apache.spark.sql.catalyst.expressions.UnaryMinus;
import org.apache.spark.sql.catalyst.expressions.UnixDate;
import org.apache.spark.sql.catalyst.expressions.UnixMicros;
import org.apache.spark.sql.catalyst.expressions.UnixMillis;
import org.apache.spark.sql.catalyst.expressions.UnixSeconds;
import org.apache.spark.sql.catalyst.expressions.UnixTimestamp;
import org.apache.spark.sql.catalyst.expressions.Year;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.NumericType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * A function of Spark's that keeps the order of one of its arguments, or turns it around; its other
 * arguments are constants.
 */
final class OrderedFunction {
  /** The outcomes of what is too small, or too great, for the type of the outcomes: to Spark it is
      an error, a null, or another number. */
  static final Object BELOW = new Object();
  static final Object ABOVE = new Object();

  private static final double YEAR = 367.0 * ValueTypes.DAY;

  private final Expression function;
  private final int place;
  private final Expression bound;

  private OrderedFunction(Expression function, int place) {
    this.function = function;
    this.place = place;
    List children = ScalaInterop.list(function.children());
    children.set(place, new BoundReference(0, argument().dataType(), true));
    this.bound = function.withNewChildren(ScalaInterop.seq(children));
  }

  /** That of an expression; null: none is known to keep the order. */
  static OrderedFunction of(Expression e) {
    int place = place(e);
    return place < 0 ? null : new OrderedFunction(e, place);
  }

  /** Which argument of an expression it keeps the order of; -1: of none. */
  private static int place(Expression e) {
    if (e instanceof Cast) return keepsOrder(type(e, 0), e.dataType()) ? 0 : -1;
    if (e instanceof Year || e instanceof LastDay || e instanceof UnixDate
        || e instanceof UnixSeconds || e instanceof UnixMillis || e instanceof UnixMicros) {
      return 0;
    }
    if (e instanceof UnixTimestamp || e instanceof ToUnixTimestamp) {
      return ValueTypes.isTime(type(e, 0)) ? 0 : -1;
    }
    if (e instanceof TruncDate) return constant(e, 1) != null ? 0 : -1;
    if (e instanceof TruncTimestamp) return constant(e, 0) != null ? 1 : -1;
    if (e instanceof UnaryMinus) return type(e, 0) instanceof IntegralType ? 0 : -1;
    if (e instanceof DateAdd || e instanceof DateSub) return constant(e, 1) != null ? 0 : -1;
    if (e instanceof DateDiff) return other(e);
    boolean divides = e instanceof Divide || e instanceof IntegralDivide;
    boolean isArithmetic =
        divides || e instanceof Add || e instanceof Subtract || e instanceof Multiply;
    return isArithmetic ? operand(e, divides) : -1;
  }

  /** The operand of arithmetic that is not the constant. */
  private static int operand(Expression e, boolean divides) {
    int place = other(e);
    if (place < 0 || divides && place == 1) return -1;
    DataType type = type(e, place);
    if (!(type instanceof NumericType) || !(e.dataType() instanceof NumericType)) return -1;
    if (e instanceof IntegralDivide && !(type instanceof IntegralType)) return -1;
    Object constant = constant(e, 1 - place);
    boolean isFinite = !Double.isInfinite(real(constant)) && !Double.isNaN(real(constant));
    boolean scales = divides || e instanceof Multiply;
    if (!isFinite || scales && sign(constant) == 0) return -1;
    // NaN stays the greatest where all else is turned around.
    return ValueTypes.isFloating(e.dataType()) && turns(e, place) ? -1 : place;
  }

  /** The one of two arguments that is not constant, beside one that is. */
  private static int other(Expression e) {
    return constant(e, 1) != null ? 0 : constant(e, 0) != null ? 1 : -1;
  }

  private static DataType type(Expression e, int place) {
    return e.children().apply(place).dataType();
  }

  private static Object constant(Expression e, int place) {
    Object child = e.children().apply(place);
    return child instanceof Literal ? ((Literal) child).value() : null;
  }

  private static double real(Object number) {
    return number instanceof Decimal
        ? ((Decimal) number).toDouble()
        : ((Number) number).doubleValue();
  }

  private static int sign(Object number) {
    return number instanceof Decimal
        ? ((Decimal) number).toJavaBigDecimal().signum()
        : (int) Math.signum(((Number) number).doubleValue());
  }

  private static boolean keepsOrder(DataType from, DataType to) {
    if (ValueTypes.isTime(from) && ValueTypes.isTime(to)) return true;
    if (from instanceof TimestampType) return to instanceof LongType;
    if (from instanceof IntegralType && to instanceof IntegralType) {
      return from.defaultSize() <= to.defaultSize();
    }
    boolean isExact = from instanceof IntegralType || from instanceof DecimalType;
    return isExact && (to instanceof DecimalType || ValueTypes.isFloating(to))
        || ValueTypes.isFloating(from) && to.defaultSize() >= from.defaultSize()
            && ValueTypes.isFloating(to);
  }

  private static boolean turns(Expression e, int place) {
    if (e instanceof UnaryMinus) return true;
    if (e instanceof Subtract || e instanceof DateDiff) return place == 1;
    boolean scales = e instanceof Multiply || e instanceof Divide || e instanceof IntegralDivide;
    return scales && sign(constant(e, 1 - place)) < 0;
  }

  /** The argument whose order it keeps. */
  Expression argument() {
    return function.children().apply(place);
  }

  /** Whether greater values have lesser outcomes. */
  boolean turns() {
    return turns(function, place);
  }

  /**
   * The zone whose clocks it reads, null if none: where they are put back, a later time may have an
   * earlier outcome, for a day at most. The start of a day is always later than that of the day
   * before.
   */
  ZoneId clocks() {
    boolean isMoment = argument().dataType() instanceof TimestampType;
    if (function instanceof TruncTimestamp) return zone();
    if (!(function instanceof Cast)) return null;
    boolean reads = isMoment && ValueTypes.isTime(function.dataType());
    boolean sets = argument().dataType() instanceof TimestampNTZType
        && function.dataType() instanceof TimestampType;
    return reads || sets ? zone() : null;
  }

  private ZoneId zone() {
    return ((TimeZoneAwareExpression) function).zoneId();
  }

  /** Whether no two values have the same outcome, which is a whole number or a day. */
  boolean isOneToOne() {
    boolean isOfNumbers = function instanceof Add || function instanceof Subtract
        || function instanceof Multiply || function instanceof UnaryMinus
        || function instanceof Cast;
    if (isOfNumbers) {
      return argument().dataType() instanceof IntegralType
          && function.dataType() instanceof IntegralType;
    }
    return function instanceof DateAdd || function instanceof DateSub
        || function instanceof DateDiff || function instanceof UnixDate;
  }

  /** Whether it may shift a time by more than clocks do. */
  boolean shifts() {
    return !(function instanceof Cast);
  }

  /** The outcome of a value, as Spark evaluates it, BELOW or ABOVE; null: it has none. */
  Object apply(Object value) {
    BigInteger exact = exact(value);
    if (exact != null && exact.bitLength() > width(function.dataType())) {
      return exact.signum() < 0 ? BELOW : ABOVE;
    }
    boolean ofTime = ValueTypes.isTime(argument().dataType()) && exact == null;
    Object end = ofTime && ((Number) value).longValue() < 0 ? BELOW : ABOVE;
    try {
      Object outcome = bound.eval(new GenericInternalRow(new Object[] {value}));
      if (outcome == null || !ofTime || !ValueTypes.isTime(function.dataType())) return outcome;
      // Beyond the last year there are numbers that have wrapped around.
      double moved = time(outcome, function.dataType()) - time(value, argument().dataType());
      return Math.abs(moved) > YEAR ? end : outcome;
    } catch (RuntimeException failed) {
      return ofTime ? end : null; // of times far off
    }
  }

  private static double time(Object value, DataType type) {
    return ((Number) value).doubleValue() * (type instanceof DateType ? ValueTypes.DAY : 1);
  }

  /** The outcome of whole numbers and days as if no type had an end; null: of others. */
  private BigInteger exact(Object value) {
    if (function instanceof UnaryMinus) return whole(value).negate();
    boolean ofDays = function instanceof DateAdd || function instanceof DateSub
        || function instanceof DateDiff;
    boolean ofNumbers = function instanceof Add || function instanceof Subtract
        || function instanceof Multiply || function instanceof IntegralDivide;
    if (!ofDays && !(ofNumbers && argument().dataType() instanceof IntegralType)) return null;
    BigInteger constant = whole(constant(function, 1 - place));
    BigInteger left = place == 0 ? whole(value) : constant;
    BigInteger right = place == 0 ? constant : whole(value);
    if (function instanceof Add || function instanceof DateAdd) return left.add(right);
    if (function instanceof Multiply) return left.multiply(right);
    return function instanceof IntegralDivide ? left.divide(right) : left.subtract(right);
  }

  private static BigInteger whole(Object value) {
    return BigInteger.valueOf(((Number) value).longValue());
  }

  /** The bits of the greatest value of integers, and of days. */
  private static int width(DataType type) {
    return type.defaultSize() * 8 - 1;
  }
}
