package rewrite.jvm.predicate;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/** What Catalyst values of a type are inside. */
public final class ValueTypes {
  private ValueTypes() {}

  /** Whether they are integers: so are dates and times. */
  public static boolean isCounted(DataType type) {
    return type instanceof IntegralType || type instanceof DateType || type instanceof TimestampType
        || type instanceof TimestampNTZType;
  }

  /** Whether one may be NaN, which is the greatest value to Spark, and not within bounds. */
  public static boolean isFloating(DataType type) {
    return type instanceof DoubleType || type instanceof FloatType;
  }
}
