package rewrite.jvm.predicate;

import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.KnownFloatingPointNormalized;
import org.apache.spark.sql.catalyst.optimizer.NormalizeNaNAndZero;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegralType;

/** Removes casts around columns that change no value. */
public final class Casts {
  private Casts() {}

  /** Remove what keeps every value and their order: casts to a wider number, and Spark's
      normalization of NaN and -0.0, which every index type treats as equal, too. */
  public static Expression bare(Expression e) {
    boolean keepsValues =
        e instanceof Cast cast && widens(cast.child().dataType(), e.dataType())
            || e instanceof NormalizeNaNAndZero || e instanceof KnownFloatingPointNormalized;
    return keepsValues ? bare(e.children().head()) : e;
  }

  private static boolean widens(DataType from, DataType to) {
    if (from instanceof IntegralType && to instanceof IntegralType) {
      return from.defaultSize() <= to.defaultSize();
    }
    if (from instanceof DecimalType less && to instanceof DecimalType more) {
      return less.scale() == more.scale() && less.precision() <= more.precision();
    }
    return from instanceof FloatType && to instanceof DoubleType;
  }
}
