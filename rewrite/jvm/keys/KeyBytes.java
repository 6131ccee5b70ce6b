package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.If;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.OctetLength;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.IntegerType$;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.ScalaInterop;

/** Counts the bytes of keys as they arrive, up to `spark.skipping.dynamic.maxBytes`. */
final class KeyBytes {
  /** The result of `fetch` if keys are long and fit: they are still to be fetched. */
  static final List<Object> LONG = new ArrayList<>();

  private static final int MIN_WIDTH = 8;

  /** Keys up to this length come with their lengths; of longer ones the lengths come first. */
  private static final int SHORT = 64;

  private final int width;
  private final long limit;
  private long sum;

  /** There is no limit if it is not above zero. */
  KeyBytes(DataType type, long limit) {
    this.width = width(type);
    this.limit = limit;
  }

  /** Count a key; whether all keys until now fit. */
  boolean fits(Object value) {
    if (value instanceof UTF8String text) return fits(text.numBytes());
    if (value instanceof byte[] bytes) return fits(bytes.length);
    return fits(value instanceof UnsafeRow tuple ? tuple.getSizeInBytes() : 0);
  }

  private boolean fits(long length) {
    sum += Math.max(width, length);
    return limit <= 0 || sum <= limit;
  }

  /** Return the bytes that a key takes at least. */
  private static int width(DataType type) {
    return Math.max(MIN_WIDTH, type.defaultSize());
  }

  /** Return how many keys fit at most. */
  static int maxKeys(DataType type, long limit) {
    return limit <= 0 ? Integer.MAX_VALUE - 1 : (int) Math.min(limit / width(type), 1 << 30);
  }

  /** Whether values of a type differ in size. */
  static boolean varies(DataType type) {
    return type instanceof StructType struct
        ? Stream.of(struct.fields()).anyMatch(field -> varies(field.dataType()))
        : type instanceof StringType || type instanceof BinaryType;
  }

  /**
   * Return the first column of a plan, which may be longer than memory: short values with their
   * lengths, of long values the lengths alone.
   *
   * @return null if the values do not fit, or are more than `maxKeys`; LONG if some are long
   */
  static List<Object> fetch(SparkPlan plan, DataType type, int maxKeys, long limit) {
    Expression key = plan.output().head();
    List<Expression> lengths = lengths(key).toList();
    Expression shortKey = key;
    for (Expression length : lengths) {
      Expression isLong = // null where the value is null, which is short
          new GreaterThan(length, new Literal(SHORT, IntegerType$.MODULE$));
      shortKey = new If(isLong, new Literal(null, key.dataType()), shortKey);
    }
    List<NamedExpression> columns =
        Stream.concat(Stream.of(shortKey), lengths.stream()).map(KeyBytes::alias).toList();
    KeyBytes bytes = new KeyBytes(type, limit);
    List<Object> out = new ArrayList<>();
    boolean areLong = false;
    for (InternalRow row :
        new ProjectExec(ScalaInterop.asScala(columns), plan).executeTake(maxKeys + 1)) {
      long octets = 0;
      for (int i = 1; i <= lengths.size(); i++) {
        int length = row.isNullAt(i) ? 0 : row.getInt(i);
        octets += length;
        areLong |= length > SHORT;
      }
      if (!bytes.fits(octets)) return null;
      out.add(row.isNullAt(0) ? null : row.get(0, type));
    }
    if (areLong) return LONG;
    return out.size() > maxKeys ? null : out;
  }

  /** Return the lengths of a key, or of each field of a tuple, if its values differ in size. */
  private static Stream<Expression> lengths(Expression key) {
    if (key.dataType() instanceof StructType type) {
      return IntStream.range(0, type.fields().length)
          .mapToObj(i -> new GetStructField(key, i, scala.Option.empty()))
          .flatMap(KeyBytes::lengths);
    }
    return varies(key.dataType()) ? Stream.of(new OctetLength(key)) : Stream.empty();
  }

  private static NamedExpression alias(Expression column) {
    return new Alias(
        column, "key", NamedExpression$.MODULE$.newExprId(), ScalaInterop.asScala(List.of()),
        scala.Option.empty(), ScalaInterop.asScala(List.of()));
  }
}
