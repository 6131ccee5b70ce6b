package rewrite.jvm.predicate;

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

/** What Catalyst values of a type are inside. */
public final class ValueTypes {
  /** A day of times, which are in microseconds. */
  static final long DAY = 86400L * 1000000L;

  private ValueTypes() {}

  /** Whether they are integers: so are dates and times. */
  public static boolean isCounted(DataType type) {
    return type instanceof IntegralType || isTime(type);
  }

  /** Whether they are dates or times. */
  static boolean isTime(DataType type) {
    return type instanceof DateType || type instanceof TimestampType
        || type instanceof TimestampNTZType;
  }

  /** Whether one may be NaN, which is the greatest value to Spark, and not within bounds. */
  public static boolean isFloating(DataType type) {
    return type instanceof DoubleType || type instanceof FloatType;
  }

  /** Whether values that are equal are the same bit by bit: zeros of floats and collated text are
      not. */
  public static boolean isExact(DataType type) {
    return isCounted(type) || type instanceof DecimalType || type instanceof BooleanType
        || type instanceof BinaryType || type.equals(StringType$.MODULE$);
  }

  /** Whether each value has its place among the integers from `least` to `greatest`, in order. */
  static boolean isOrdinal(DataType type) {
    return isCounted(type) || isFloating(type)
        || type instanceof DecimalType && ((DecimalType) type).precision() <= 18;
  }

  /** The place of the least value of a type. */
  static long least(DataType type) {
    if (type instanceof DecimalType) return -greatest(type);
    if (type instanceof FloatType) return place(Float.floatToIntBits(Float.NEGATIVE_INFINITY));
    return type instanceof DoubleType
        ? place(Double.doubleToLongBits(Double.NEGATIVE_INFINITY))
        : Long.MIN_VALUE >> 64 - 8 * type.defaultSize();
  }

  /** The place of the greatest value of a type, which is NaN where there is one. */
  static long greatest(DataType type) {
    if (type instanceof DecimalType) {
      return java.math.BigInteger.TEN.pow(((DecimalType) type).precision()).longValue() - 1;
    }
    if (type instanceof FloatType) return place(Float.floatToIntBits(Float.NaN));
    return type instanceof DoubleType
        ? place(Double.doubleToLongBits(Double.NaN))
        : Long.MAX_VALUE >> 64 - 8 * type.defaultSize();
  }

  /** The bits of a number as a place, and back: those of negative numbers count the other way. */
  private static long place(long bits) {
    return bits ^ bits >> 63 & Long.MAX_VALUE;
  }

  private static int place(int bits) {
    return bits ^ bits >> 31 & Integer.MAX_VALUE;
  }

  /** The value at a place, as Catalyst has it. */
  static Object value(DataType type, long at) {
    if (type instanceof DecimalType) {
      DecimalType own = (DecimalType) type;
      return Decimal$.MODULE$.createUnsafe(at, own.precision(), own.scale());
    }
    if (type instanceof DoubleType) return Double.valueOf(Double.longBitsToDouble(place(at)));
    if (type instanceof FloatType) return Float.valueOf(Float.intBitsToFloat(place((int) at)));
    if (type.defaultSize() == 8) return Long.valueOf(at);
    return type instanceof ShortType ? (Object) Short.valueOf((short) at)
        : type instanceof ByteType ? (Object) Byte.valueOf((byte) at)
        : (Object) Integer.valueOf((int) at);
  }
}
