package rewrite.jvm.source;

import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.Json;

/**
 * What the bounds in a table's own metadata prove: the rows of `skipping/tables/bounds.py`, which
 * says why. Without them no bound proves anything.
 */
public final class BoundRule {
  /** Formats, and the footers of Parquet files. */
  public static final String PARQUET = "parquet";
  static final String DELTA = "delta";
  static final String ICEBERG = "iceberg";

  /** What may be true of a column. */
  static final String WIDENED = "widened";
  static final String MAPPED = "mapped";

  private static volatile Map table = Collections.EMPTY_MAP;

  private final Map row;
  private final DataType type;

  private BoundRule(Map row, DataType type) {
    this.row = row;
    this.type = type;
  }

  /** Takes the rows, as Python writes them. */
  public static void use(String rules) throws IOException {
    table = Json.read(rules.getBytes(StandardCharsets.UTF_8));
  }

  /** The rule for a column of a type; `what` is true of it, null: nothing. */
  public static BoundRule of(String format, DataType type, String what) {
    String name = type.simpleString();
    int end = name.indexOf('(');
    if (end >= 0) name = name.substring(0, end);
    int digits = type instanceof DecimalType ? ((DecimalType) type).precision() : 0;
    List rows = table.containsKey("bounds") ? (List) table.get("bounds") : Collections.EMPTY_LIST;
    for (int i = 0; i < rows.size(); i++) {
      Map row = (Map) rows.get(i);
      Object when = row.get("when");
      boolean fits =
          ((List) row.get("formats")).contains(format) && ((List) row.get("types")).contains(name)
              && digits <= ((Number) row.get("digits")).intValue()
              && (when == null || when.equals(what));
      if (fits) return new BoundRule(row, type);
    }
    return new BoundRule(Collections.EMPTY_MAP, type);
  }

  /** The row for an Iceberg transform; null: all its values are where they belong. */
  static Map transform(String name) {
    List rows = (List) table.get("transforms");
    for (int i = 0; rows != null && i < rows.size(); i++) {
      Map row = (Map) rows.get(i);
      if (row.get("transform").equals(name)) return row;
    }
    return null;
  }

  /** Whether bounds say something. */
  public boolean proves() {
    return Boolean.TRUE.equals(row.get("proves"));
  }

  /** The bounds (Catalyst values) that the values are surely within, NaN and nulls aside; null:
      any value. */
  public Object[] widen(Object lower, Object upper) {
    if (!proves() || lower == null || upper == null) return null;
    if (SortedValues.isUntold(lower) || SortedValues.isUntold(upper)) return null;
    if (TypeUtils$.MODULE$.getInterpretedOrdering(type).compare(lower, upper) > 0) return null;
    if (upper instanceof UTF8String || upper instanceof byte[]) {
      Object end = end(upper);
      return end == null ? null : new Object[] {lower, end};
    }
    if (upper instanceof Float || upper instanceof Double) {
      return new Object[] {infinite(lower, -1), infinite(upper, 1)};
    }
    if (upper instanceof Decimal) {
      return isNever(lower) || isNever(upper)
          ? null
          : new Object[] {moved(lower, -1), moved(upper, 1)};
    }
    if (!(upper instanceof Long)) return new Object[] {lower, upper};
    if (isBeyond(((Long) lower).longValue(), ((Long) upper).longValue())) return null;
    long margin = number("margin");
    long from = ((Long) lower).longValue() - margin;
    long to = ((Long) upper).longValue() + margin;
    return new Object[] {
      Long.valueOf(from > ((Long) lower).longValue() ? Long.MIN_VALUE : from),
      Long.valueOf(to < ((Long) upper).longValue() ? Long.MAX_VALUE : to)
    };
  }

  private boolean isBeyond(long lower, long upper) {
    return row.get("since") != null && lower < number("since")
        || row.get("until") != null && upper >= number("until");
  }

  /** A DOUBLE's bound may be that of a FLOAT, which a column was. */
  private static Object infinite(Object bound, int sign) {
    if (((Number) bound).doubleValue() * sign < Float.MAX_VALUE) return bound;
    double infinity = sign * Double.POSITIVE_INFINITY;
    return bound instanceof Float
        ? (Object) Float.valueOf((float) infinity)
        : Double.valueOf(infinity);
  }

  private boolean isNever(Object bound) {
    List never = (List) row.get("never");
    for (int i = 0; i < never.size(); i++) {
      if (unscaled(bound).equals(new BigInteger(never.get(i).toString()))) return true;
    }
    return false;
  }

  private BigInteger unscaled(Object bound) {
    int scale = ((DecimalType) type).scale();
    return ((Decimal) bound).toJavaBigDecimal().setScale(scale).unscaledValue();
  }

  private Object moved(Object bound, int sign) {
    int scale = ((DecimalType) type).scale();
    BigInteger own = unscaled(bound);
    BigInteger by = BigInteger.TEN.pow(scale).multiply(BigInteger.valueOf(number("margin")));
    if (row.get("bits") != null) {
      by = by.add(own.abs().shiftRight((int) number("bits"))).add(BigInteger.ONE);
    }
    BigInteger moved = sign < 0 ? own.subtract(by) : own.add(by);
    return org.apache.spark.sql.types.Decimal$.MODULE$.apply(new BigDecimal(moved, scale));
  }

  /** An upper bound, or what is above all that begins with it; null: nothing is. */
  private Object end(Object upper) {
    boolean isText = upper instanceof UTF8String;
    int size = isText ? ((UTF8String) upper).numBytes() : ((byte[]) upper).length;
    if (row.get("prefix") == null || size < number("prefix")) return upper;
    return isText ? (Object) successor(upper.toString()) : successor((byte[]) upper);
  }

  private static UTF8String successor(String text) {
    int end = text.length();
    while (end > 0 && text.codePointBefore(end) == Character.MAX_CODE_POINT) end -= 2;
    if (end == 0) return null;
    int last = text.codePointBefore(end);
    int start = end - Character.charCount(last);
    int next = last + 1 == Character.MIN_SURROGATE ? Character.MAX_SURROGATE + 1 : last + 1;
    return UTF8String.fromString(text.substring(0, start) + new String(Character.toChars(next)));
  }

  private static byte[] successor(byte[] bytes) {
    int end = bytes.length;
    while (end > 0 && bytes[end - 1] == -1) end--;
    if (end == 0) return null;
    byte[] out = java.util.Arrays.copyOf(bytes, end);
    out[end - 1]++;
    return out;
  }

  private long number(String name) {
    return ((Number) row.get(name)).longValue();
  }
}
