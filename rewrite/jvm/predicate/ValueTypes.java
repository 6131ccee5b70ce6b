package rewrite.jvm.predicate;

import java.math.BigInteger;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal$;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/** Classifies types by the Catalyst values that they have. */
public final class ValueTypes {
  /** A day in microseconds, the unit of timestamps. */
  static final long DAY = 86400L * 1000000L;

  private ValueTypes() {}

  /** Whether values are integers, as dates and timestamps are. */
  public static boolean isCounted(DataType type) {
    return type instanceof IntegralType || isTime(type);
  }

  static boolean isTime(DataType type) {
    return type instanceof DateType || type instanceof TimestampType
        || type instanceof TimestampNTZType;
  }

  /** Whether a value may be NaN, which is the max to Spark and is missing in bounds. */
  public static boolean isFloating(DataType type) {
    return type instanceof DoubleType || type instanceof FloatType;
  }

  /** Whether equal values have equal bits, unlike the zeros of floats and collated texts. */
  public static boolean isExact(DataType type) {
    return isCounted(type) || type instanceof DecimalType || type instanceof BooleanType
        || type instanceof BinaryType || type.equals(StringType$.MODULE$);
  }

  /** Whether values map to the integers from `minPlace` to `maxPlace`, in order. */
  static boolean isOrdinal(DataType type) {
    return isCounted(type) || isFloating(type)
        || type instanceof DecimalType decimal && decimal.precision() <= 18;
  }

  /** Return the place of the min of a type. */
  static long minPlace(DataType type) {
    if (type instanceof DecimalType) return -maxPlace(type);
    if (type instanceof FloatType) return place(Float.floatToIntBits(Float.NEGATIVE_INFINITY));
    return type instanceof DoubleType
        ? place(Double.doubleToLongBits(Double.NEGATIVE_INFINITY))
        : Long.MIN_VALUE >> 64 - 8 * type.defaultSize();
  }

  /** Return the place of the max of a type, which is NaN for floating point. */
  static long maxPlace(DataType type) {
    if (type instanceof DecimalType decimal) {
      return BigInteger.TEN.pow(decimal.precision()).longValue() - 1;
    }
    if (type instanceof FloatType) return place(Float.floatToIntBits(Float.NaN));
    return type instanceof DoubleType
        ? place(Double.doubleToLongBits(Double.NaN))
        : Long.MAX_VALUE >> 64 - 8 * type.defaultSize();
  }

  /** Convert the bits of a floating-point number to a place and back; reverses negative numbers. */
  private static long place(long bits) {
    return bits ^ bits >> 63 & Long.MAX_VALUE;
  }

  private static int place(int bits) {
    return bits ^ bits >> 31 & Integer.MAX_VALUE;
  }

  /** Return a Catalyst value that is a number, a date or a timestamp. */
  public static long toLong(Object value) {
    return ((Number) value).longValue();
  }

  static double toDouble(Object value) {
    return ((Number) value).doubleValue();
  }

  /** Return the Catalyst value at a place. */
  static Object value(DataType type, long at) {
    if (type instanceof DecimalType decimal) {
      return Decimal$.MODULE$.createUnsafe(at, decimal.precision(), decimal.scale());
    }
    if (type instanceof DoubleType) return Double.longBitsToDouble(place(at));
    if (type instanceof FloatType) return Float.intBitsToFloat(place((int) at));
    return integer(type, at);
  }

  /** Return an integer as Catalyst boxes it for an integral type, a date or a timestamp. */
  public static Object integer(DataType type, long value) {
    if (type instanceof ByteType) return (byte) value;
    if (type instanceof ShortType) return (short) value;
    if (type.defaultSize() == 4) return (int) value;
    return value;
  }
}
