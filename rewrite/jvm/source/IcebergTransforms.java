package rewrite.jvm.source;

import java.math.BigDecimal;
import java.math.BigInteger;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/** Tells where the transforms of Iceberg's partitions may put rows that belong elsewhere. */
final class IcebergTransforms {
  private static final long HOUR = 3600L * 1000000L; // microseconds

  private IcebergTransforms() {}

  /** Whether the values of a partition that are made of a column may be those of other rows. */
  static boolean mayMisplace(PartitionSpec spec, Types.NestedField field, StructLike partition) {
    for (int i = 0; i < spec.fields().size(); i++) {
      PartitionField part = spec.fields().get(i);
      BoundRule.Transform rule = rule(part, field);
      if (rule == null || !(partition.get(i, Object.class) instanceof Number value)) continue;
      if (rule.multiple() && (isWide(part, field) || !isExact(value, width(part)))) return true;
      if (rule.isBeyond(value.longValue())) return true;
    }
    return false;
  }

  /** Whether a transform may turn the end of a range into another number. */
  static boolean mayOverflow(PartitionSpec spec, Types.NestedField field, Object end) {
    if (!(end instanceof Number number)) return false;
    long value = number.longValue();
    boolean isInteger = end instanceof Integer || end instanceof Long;
    for (PartitionField part : spec.fields()) {
      BoundRule.Transform rule = rule(part, field);
      if (rule == null) continue;
      if (rule.multiple() && isInteger) {
        if (isWide(part, field) || value < min(field) + width(part)) return true;
      }
      if (rule.isBeyond(value / HOUR)) return true;
    }
    return false;
  }

  /** Whether all rows with a truncated value have just that value. */
  private static boolean isExact(Number value, long width) {
    BigInteger unscaled =
        value instanceof BigDecimal decimal
            ? decimal.unscaledValue()
            : BigInteger.valueOf(value.longValue());
    return unscaled.signum() > 0 && unscaled.mod(BigInteger.valueOf(width)).signum() == 0;
  }

  /** Returns the rule of a transform that is of a field, such as `truncate` of `truncate[10]`. */
  private static BoundRule.Transform rule(PartitionField part, Types.NestedField field) {
    return part.sourceId() == field.fieldId()
        ? BoundRule.transform(part.transform().toString().split("\\[")[0])
        : null;
  }

  private static long width(PartitionField part) {
    String text = part.transform().toString();
    return Long.parseLong(text.substring(text.indexOf('[') + 1, text.length() - 1));
  }

  private static boolean isWide(PartitionField part, Types.NestedField field) {
    return field.type().typeId() == Type.TypeID.INTEGER && width(part) > Integer.MAX_VALUE / 4;
  }

  private static long min(Types.NestedField field) {
    return field.type().typeId() == Type.TypeID.INTEGER ? Integer.MIN_VALUE : Long.MIN_VALUE;
  }
}
