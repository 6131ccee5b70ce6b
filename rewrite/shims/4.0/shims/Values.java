package rewrite.jvm.shims;

import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.classic.ExpressionUtils$;
import org.apache.spark.sql.execution.ScalarSubquery;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Types, values and errors.
 *
 * <p>Since 4.0 there are variants and collations, columns are made of nodes, and the class of an
 * error is its condition.
 */
public final class Values {
  private Values() {}

  /** Whether values of a type have no schema. */
  public static boolean isVariant(Object type) {
    return type instanceof VariantType;
  }

  /** Whether the order of texts is that of their bytes. */
  public static boolean areOrderedByBytes(StringType type) {
    return type.supportsBinaryOrdering();
  }

  /** Whether only texts with the same bytes are equal. */
  public static boolean areEqualByBytes(StringType type) {
    return type.supportsBinaryEquality();
  }

  /** Whether the bytes of a text are UTF-8. */
  public static boolean isUtf8(UTF8String text) {
    return text.isValid();
  }

  /** The value that a subquery has computed. */
  public static Literal literal(ScalarSubquery subquery) {
    return subquery.toLiteral();
  }

  /** An expression as a column. */
  public static Column column(Expression e) {
    return ExpressionUtils$.MODULE$.column(e);
  }

  /** The name of an error's kind. */
  public static String condition(SparkThrowable error) {
    return error.getCondition();
  }
}
