package rewrite.jvm.predicate;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.types.DataType;

/** Paths of variants, which do not exist before 4.0. */
final class VariantFields {
  private VariantFields() {}

  /** Whether a field is a path of a variant. */
  static boolean isOne(GetStructField field) {
    return false;
  }

  /** Whether a struct stands for a variant. */
  static boolean isVariant(DataType type) {
    return false;
  }

  /** Whether an expression reads a path of a variant. */
  static boolean isGet(Expression e) {
    return false;
  }

  /** Such a field as the function that it was; any other expression as it is. */
  static Expression restore(Expression e) {
    return e;
  }
}
