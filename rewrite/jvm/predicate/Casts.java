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

/** Casts that Spark puts around columns, and that change no value. */
public final class Casts {
  private Casts() {}

  /** An expression without what keeps every value and their order: casts to a wider number, and
      Spark's normalisation of NaN and -0.0, which every index kind makes equal too. */
  public static Expression bare(Expression e) {
    while (true) {
      if (e instanceof Cast && widens(((Cast) e).child().dataType(), e.dataType())) {
        e = ((Cast) e).child();
      } else if (e instanceof NormalizeNaNAndZero || e instanceof KnownFloatingPointNormalized) {
        e = e.children().apply(0);
      } else {
        return e;
      }
    }
  }

  private static boolean widens(DataType from, DataType to) {
    if (from instanceof IntegralType && to instanceof IntegralType) {
      return from.defaultSize() <= to.defaultSize();
    }
    if (from instanceof DecimalType && to instanceof DecimalType) {
      DecimalType less = (DecimalType) from;
      DecimalType more = (DecimalType) to;
      return less.scale() == more.scale() && less.precision() <= more.precision();
    }
    return from instanceof FloatType && to instanceof DoubleType;
  }
}
