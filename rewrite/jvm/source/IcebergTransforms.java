package rewrite.jvm.source;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.Map;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/** Where the transforms of Iceberg's partitions put rows that belong elsewhere (BoundRule). */
final class IcebergTransforms {
  private static final long HOUR = 3600L * 1000000L; // microseconds

  private IcebergTransforms() {}

  /** Whether the values of a partition that are made of a column may be those of other rows. */
  static boolean mayMisplace(PartitionSpec spec, Types.NestedField field, StructLike partition) {
    for (int i = 0; i < spec.fields().size(); i++) {
      PartitionField part = spec.fields().get(i);
      Map rule = part.sourceId() == field.fieldId() ? BoundRule.transform(name(part)) : null;
      Object value = rule == null ? null : partition.get(i, Object.class);
      if (!(value instanceof Number)) continue;
      if (Boolean.TRUE.equals(rule.get("multiple"))) {
        if (isWide(part, field) || !isSure((Number) value, width(part))) return true;
      }
      Number within = (Number) rule.get("within");
      if (within != null && Math.abs(((Number) value).longValue()) > within.longValue()) return true;
    }
    return false;
  }

  /** Whether the end of a range may come out of a transform as another number. */
  static boolean mayOverflow(PartitionSpec spec, Types.NestedField field, Object end) {
    for (int i = 0; i < spec.fields().size(); i++) {
      PartitionField part = spec.fields().get(i);
      Map rule = part.sourceId() == field.fieldId() ? BoundRule.transform(name(part)) : null;
      if (rule == null || !(end instanceof Number)) continue;
      long value = ((Number) end).longValue();
      boolean isWhole = end instanceof Integer || end instanceof Long;
      if (Boolean.TRUE.equals(rule.get("multiple")) && isWhole) {
        if (isWide(part, field) || value < least(field) + width(part)) return true;
      }
      Number within = (Number) rule.get("within");
      if (within != null && Math.abs(value / HOUR) > within.longValue()) return true;
    }
    return false;
  }

  /** Whether a truncated value is that of all its rows. */
  private static boolean isSure(Number value, long width) {
    BigInteger unscaled =
        value instanceof BigDecimal
            ? ((BigDecimal) value).unscaledValue()
            : BigInteger.valueOf(value.longValue());
    return unscaled.signum() > 0 && unscaled.mod(BigInteger.valueOf(width)).signum() == 0;
  }

  /** `truncate` of `truncate[10]`. */
  private static String name(PartitionField part) {
    String text = part.transform().toString();
    int end = text.indexOf('[');
    return end < 0 ? text : text.substring(0, end);
  }

  private static long width(PartitionField part) {
    String text = part.transform().toString();
    return Long.parseLong(text.substring(text.indexOf('[') + 1, text.length() - 1));
  }

  private static boolean isWide(PartitionField part, Types.NestedField field) {
    return field.type().typeId() == Type.TypeID.INTEGER && width(part) > Integer.MAX_VALUE / 4;
  }

  private static long least(Types.NestedField field) {
    return field.type().typeId() == Type.TypeID.INTEGER ? Integer.MIN_VALUE : Long.MIN_VALUE;
  }
}
