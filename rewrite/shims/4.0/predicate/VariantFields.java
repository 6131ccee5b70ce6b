package rewrite.jvm.predicate;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.variant.VariantGet;
import org.apache.spark.sql.execution.datasources.VariantMetadata$;
import org.apache.spark.sql.execution.datasources.VariantMetadata;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Some;

/** What Spark makes of `variant_get(v, ...)` where the scan reads the paths of a variant: v becomes
    a struct with a field for each path, whose metadata say which it is (PushVariantIntoScan). */
final class VariantFields {
  private VariantFields() {}

  /** Whether a field is a path of a variant. */
  static boolean isOne(GetStructField field) {
    return isVariant(field.child().dataType());
  }

  /** Whether a struct stands for a variant. */
  static boolean isVariant(DataType type) {
    return VariantMetadata$.MODULE$.isVariantStruct(type);
  }

  /** Whether an expression reads a path of a variant. */
  static boolean isGet(Expression e) {
    return e instanceof VariantGet;
  }

  /** Such a field as the function that it was, over the struct; any other expression as it is. */
  static Expression restore(Expression e) {
    if (!(e instanceof GetStructField field) || !isOne(field)) return e;
    StructField of = field.childSchema().fields()[field.ordinal()];
    VariantMetadata path = VariantMetadata$.MODULE$.fromMetadata(of.metadata());
    return new VariantGet(
        field.child(), new Literal(UTF8String.fromString(path.path()), DataTypes.StringType),
        of.dataType(), path.failOnError(), new Some<>(path.timeZoneId()));
  }
}
