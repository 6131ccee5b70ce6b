package rewrite.jvm.source;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.Decimal$;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * How far bounds in a table's own metadata are trusted: the rules of `skipping/tables/bounds.py`,
 * which says why. Without rules no bound proves anything.
 */
public final class BoundRule {
  /** Formats, and the footers of Parquet files. */
  public static final String PARQUET = "parquet";
  static final String DELTA = "delta";
  static final String ICEBERG = "iceberg";

  /** What may be true of a column. */
  static final String WIDENED = "widened";
  static final String MAPPED = "mapped";

  private static volatile Rules rules = new Rules(List.of(), List.of());

  private final Row row; // null: no bound is trusted
  private final DataType type;

  /** The values from one to another, both included. */
  public record Range(Object lower, Object upper) {}

  private record Rules(List<Row> bounds, List<Transform> transforms) {}

  /** A rule of Python's. */
  @JsonIgnoreProperties(ignoreUnknown = true)
  private record Row(
      List<String> formats, List<String> types, boolean proves, String when, int digits,
      Long since, Long until, List<BigInteger> never, long margin, Integer bits, Integer prefix) {}

  /** The partition values of an Iceberg transform that may have rows of other partitions: see
      `TransformRule`. */
  @JsonIgnoreProperties(ignoreUnknown = true)
  record Transform(String transform, boolean multiple, Long within) {
    boolean isBeyond(long value) {
      return within != null && Math.abs(value) > within;
    }
  }

  private BoundRule(Row row, DataType type) {
    this.row = row;
    this.type = type;
  }

  /** Takes the rules, as Python writes them. */
  public static void use(String json) throws IOException {
    rules = new ObjectMapper().readValue(json, Rules.class);
  }

  /** Returns the rule for a column of a type; `what` is true of it, null: nothing. */
  public static BoundRule of(String format, DataType type, String what) {
    String name = type.simpleString().replaceFirst("\\(.*", "");
    int digits = type instanceof DecimalType decimal ? decimal.precision() : 0;
    for (Row row : rules.bounds) {
      boolean fits =
          row.formats.contains(format) && row.types.contains(name) && digits <= row.digits
              && (row.when == null || row.when.equals(what));
      if (fits) return new BoundRule(row, type);
    }
    return new BoundRule(null, type);
  }

  /** Returns the rule for an Iceberg transform; null: all its values are in their partitions. */
  static Transform transform(String name) {
    for (Transform each : rules.transforms) {
      if (each.transform.equals(name)) return each;
    }
    return null;
  }

  /** Whether bounds say something. */
  public boolean proves() {
    return row != null && row.proves;
  }

  /** Returns bounds (Catalyst values) that hold for all values except NaN and null; null if they
      are not trusted. */
  public Range widen(Object lower, Object upper) {
    if (!proves() || lower == null || upper == null) return null;
    if (SortedValues.isUncovered(lower) || SortedValues.isUncovered(upper)) return null;
    if (TypeUtils$.MODULE$.getInterpretedOrdering(type).compare(lower, upper) > 0) return null;
    if (upper instanceof UTF8String || upper instanceof byte[]) {
      Object end = end(upper);
      return end == null ? null : new Range(lower, end);
    }
    if (upper instanceof Float || upper instanceof Double) {
      return new Range(infinite((Number) lower, -1), infinite((Number) upper, 1));
    }
    if (lower instanceof Decimal min && upper instanceof Decimal max) {
      BigInteger low = unscaledValue(min);
      BigInteger high = unscaledValue(max);
      if (row.never.contains(low) || row.never.contains(high)) return null;
      return new Range(decimal(low.subtract(slack(low))), decimal(high.add(slack(high))));
    }
    if (!(lower instanceof Long low && upper instanceof Long high)) return new Range(lower, upper);
    if (row.since != null && low < row.since || row.until != null && high >= row.until) return null;
    long from = low - row.margin;
    long to = high + row.margin;
    return new Range(from > low ? Long.MIN_VALUE : from, to < high ? Long.MAX_VALUE : to);
  }

  /** Returns infinity for the largest FLOAT. A DOUBLE's bound may be that of a FLOAT, which the
      column was. */
  private static Object infinite(Number bound, int sign) {
    if (bound.doubleValue() * sign < Float.MAX_VALUE) return bound;
    double infinity = sign * Double.POSITIVE_INFINITY;
    return bound instanceof Float ? (Object) (float) infinity : infinity;
  }

  private BigInteger unscaledValue(Decimal bound) {
    return bound.toJavaBigDecimal().setScale(scale()).unscaledValue();
  }

  private Decimal decimal(BigInteger unscaled) {
    return Decimal$.MODULE$.apply(new BigDecimal(unscaled, scale()));
  }

  private BigInteger slack(BigInteger bound) {
    BigInteger margin = BigInteger.TEN.pow(scale()).multiply(BigInteger.valueOf(row.margin));
    return row.bits == null
        ? margin
        : margin.add(bound.abs().shiftRight(row.bits)).add(BigInteger.ONE);
  }

  private int scale() {
    return ((DecimalType) type).scale();
  }

  /** Returns an upper bound, or what is above all that begins with it; null: nothing is. */
  private Object end(Object upper) {
    byte[] bytes = upper instanceof UTF8String text ? text.getBytes() : (byte[]) upper;
    if (row.prefix == null || bytes.length < row.prefix) return upper;
    return upper instanceof UTF8String ? successor(upper.toString()) : successor(bytes);
  }

  private static UTF8String successor(String text) {
    int end = text.length();
    while (end > 0 && text.codePointBefore(end) == Character.MAX_CODE_POINT) end -= 2;
    if (end == 0) return null;
    int last = text.codePointBefore(end);
    int start = end - Character.charCount(last);
    int next = last + 1 == Character.MIN_SURROGATE ? Character.MAX_SURROGATE + 1 : last + 1;
    return UTF8String.fromString(text.substring(0, start) + Character.toString(next));
  }

  private static byte[] successor(byte[] bytes) {
    int end = bytes.length;
    while (end > 0 && bytes[end - 1] == -1) end--;
    if (end == 0) return null;
    byte[] out = Arrays.copyOf(bytes, end);
    out[end - 1]++;
    return out;
  }
}
