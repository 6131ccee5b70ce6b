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

/** A monotonic function of Spark's in one argument; its other arguments are constants. */
final class OrderedFunction {
  /** The results below the min and above the max of the result type, where Spark gives an error, a
      null or another number. */
  static final Object BELOW = new Object();
  static final Object ABOVE = new Object();

  private static final double YEAR = 367.0 * ValueTypes.DAY;

  private final Expression function;
  private final int place;
  private final Expression bound;

  private OrderedFunction(Expression function, int place) {
    this.function = function;
    this.place = place;
    List<Expression> children = ScalaInterop.asJava(function.children());
    children.set(place, new BoundReference(0, argument().dataType(), true));
    this.bound = function.withNewChildren(ScalaInterop.asScala(children));
  }

  /** Return the function in an expression; null if it is not known to be monotonic. */
  static OrderedFunction of(Expression e) {
    int place = findArgument(e);
    return place < 0 ? null : new OrderedFunction(e, place);
  }

  /** Return the place of the argument in which an expression is monotonic, or -1. */
  private static int findArgument(Expression e) {
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
    if (e instanceof DateDiff) return besideConstant(e);
    boolean divides = e instanceof Divide || e instanceof IntegralDivide;
    boolean isArithmetic =
        divides || e instanceof Add || e instanceof Subtract || e instanceof Multiply;
    return isArithmetic ? findOperand(e, divides) : -1;
  }

  /** Return the place of the operand that is not constant, or -1. */
  private static int findOperand(Expression e, boolean divides) {
    int place = besideConstant(e);
    if (place < 0 || divides && place == 1) return -1;
    DataType type = type(e, place);
    if (!(type instanceof NumericType) || !(e.dataType() instanceof NumericType)) return -1;
    if (e instanceof IntegralDivide && !(type instanceof IntegralType)) return -1;
    Object constant = constant(e, 1 - place);
    boolean isFinite = !Double.isInfinite(real(constant)) && !Double.isNaN(real(constant));
    boolean scales = divides || e instanceof Multiply;
    if (!isFinite || scales && sign(constant) == 0) return -1;
    // NaN stays the max if the function is decreasing.
    return ValueTypes.isFloating(e.dataType()) && isDecreasing(e, place) ? -1 : place;
  }

  /** Return the place of the argument beside a constant one, or -1. */
  private static int besideConstant(Expression e) {
    return constant(e, 1) != null ? 0 : constant(e, 0) != null ? 1 : -1;
  }

  private static DataType type(Expression e, int place) {
    return e.children().apply(place).dataType();
  }

  private static Object constant(Expression e, int place) {
    return e.children().apply(place) instanceof Literal literal ? literal.value() : null;
  }

  private static double real(Object number) {
    return number instanceof Decimal decimal ? decimal.toDouble() : ValueTypes.toDouble(number);
  }

  private static int sign(Object number) {
    return number instanceof Decimal decimal
        ? decimal.toJavaBigDecimal().signum()
        : (int) Math.signum(ValueTypes.toDouble(number));
  }

  private static boolean keepsOrder(DataType from, DataType to) {
    if (ValueTypes.isTime(from) && ValueTypes.isTime(to)) return true;
    if (from instanceof TimestampType) return to instanceof LongType;
    // Outside of a narrower type there is no result in order: see `apply`.
    if (from instanceof IntegralType && to instanceof IntegralType) return true;
    boolean isExact = from instanceof IntegralType || from instanceof DecimalType;
    return isExact && (to instanceof DecimalType || ValueTypes.isFloating(to))
        || ValueTypes.isFloating(from) && to.defaultSize() >= from.defaultSize()
            && ValueTypes.isFloating(to);
  }

  private static boolean isDecreasing(Expression e, int place) {
    if (e instanceof UnaryMinus) return true;
    if (e instanceof Subtract || e instanceof DateDiff) return place == 1;
    boolean scales = e instanceof Multiply || e instanceof Divide || e instanceof IntegralDivide;
    return scales && sign(constant(e, 1 - place)) < 0;
  }

  /** Return the argument in which the function is monotonic. */
  Expression argument() {
    return function.children().apply(place);
  }

  boolean isDecreasing() {
    return isDecreasing(function, place);
  }

  /**
   * Return the zone whose clocks the function reads, or null.
   *
   * <p>When clocks are put back, a later time may have an earlier result, for a day at most. The
   * start of a day is always later than that of the day before.
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

  /** Whether no two values have the same result, which is an integer or a day. */
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

  /** Whether the function may shift a time by more than clocks do. */
  boolean mayShift() {
    return !(function instanceof Cast);
  }

  /** Return what Spark computes for a value, BELOW or ABOVE; null if there is no result. */
  Object apply(Object value) {
    BigInteger exact = computeExactly(value);
    int bits = function.dataType().defaultSize() * 8 - 1;
    if (exact != null && exact.bitLength() > bits) {
      return exact.signum() < 0 ? BELOW : ABOVE;
    }
    boolean ofTime = ValueTypes.isTime(argument().dataType()) && exact == null;
    Object end = (ofTime || isDecimal()) && isNegative(value) ? BELOW : ABOVE;
    try {
      Object result = bound.eval(new GenericInternalRow(new Object[] {value}));
      if (result == null && isDecimal()) return end; // a decimal with fewer digits
      if (result == null || !ofTime || !ValueTypes.isTime(function.dataType())) return result;
      // Beyond the last year numbers wrap around.
      double shift = micros(result, function.dataType()) - micros(value, argument().dataType());
      return Math.abs(shift) > YEAR ? end : result;
    } catch (RuntimeException failed) {
      return ofTime || isDecimal() ? end : null; // the time or decimal is out of range
    }
  }

  /** Whether the function is a cast of integers or decimals to decimals. */
  private boolean isDecimal() {
    DataType from = argument().dataType();
    return function instanceof Cast && function.dataType() instanceof DecimalType
        && (from instanceof IntegralType || from instanceof DecimalType);
  }

  private static boolean isNegative(Object value) {
    return value instanceof Decimal decimal
        ? decimal.toJavaBigDecimal().signum() < 0
        : ValueTypes.toLong(value) < 0;
  }

  private static double micros(Object value, DataType type) {
    return ValueTypes.toDouble(value) * (type instanceof DateType ? ValueTypes.DAY : 1);
  }

  /** Return the result for integers and days without overflow; null for other functions. */
  private BigInteger computeExactly(Object value) {
    if (function instanceof UnaryMinus) return whole(value).negate();
    if (function instanceof Cast) {
      boolean ofIntegers =
          argument().dataType() instanceof IntegralType
              && function.dataType() instanceof IntegralType;
      return ofIntegers ? whole(value) : null;
    }
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
    return BigInteger.valueOf(ValueTypes.toLong(value));
  }
}
