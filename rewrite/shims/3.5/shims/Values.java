package rewrite.jvm.shims;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import org.apache.spark.SparkThrowable;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.execution.ScalarSubquery;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Types, values and errors.
 *
 * <p>Until 3.5 there are neither variants nor collations, and text does not check its bytes.
 */
public final class Values {
  private Values() {}

  /** Whether values of a type have no schema. */
  public static boolean isVariant(Object type) {
    return false;
  }

  /** Whether the order of texts is that of their bytes. */
  public static boolean areOrderedByBytes(StringType type) {
    return true;
  }

  /** Whether only texts with the same bytes are equal. */
  public static boolean areEqualByBytes(StringType type) {
    return true;
  }

  /** Whether the bytes of a text are UTF-8. */
  public static boolean isUtf8(UTF8String text) {
    try {
      StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(text.getBytes()));
      return true;
    } catch (CharacterCodingException invalid) {
      return false;
    }
  }

  /** The value that a subquery has computed. */
  public static Literal literal(ScalarSubquery subquery) {
    return new Literal(subquery.eval(null), subquery.dataType());
  }

  /** An expression as a column. */
  public static Column column(Expression e) {
    return new Column(e);
  }

  /** The name of an error's kind. */
  public static String condition(SparkThrowable error) {
    return error.getErrorClass();
  }
}
