package rewrite.jvm.predicate;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.CatalystTypeConverters$;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BloomFilterMightContain;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.XxHash64;
import org.apache.spark.sql.types.BinaryType$;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.util.sketch.BloomFilter;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * "The column has one of these keys", for what is left of a table when its files were pruned: for
 * each row, exact or nearly so, and for the Parquet reader, as a few ranges.
 *
 * <p>Neither replaces the join.
 */
public final class RuntimeRowFilter {
  /** Keys up to here are looked up one by one; beyond, in a bloom filter. */
  private static final int EXACT = 10000;

  private static final double FALSE_POSITIVES = 0.01;

  /** Parquet tests a list of values up to spark.sql.parquet.pushdown.inFilterThreshold. */
  private static final int RANGES = 10;

  private RuntimeRowFilter() {}

  /** The condition on rows. */
  public static Expression rows(Expression column, List keys) {
    return keys.size() <= EXACT
        ? new InSet(column, set(keys))
        : new BloomFilterMightContain(
            new Literal(bloom(column.dataType(), keys), BinaryType$.MODULE$), hash(column));
  }

  private static scala.collection.immutable.Set set(List keys) {
    return ScalaInterop.seq(keys).toSet();
  }

  private static Expression hash(Expression of) {
    return new XxHash64(ScalaInterop.seq(Collections.singletonList(of)));
  }

  private static byte[] bloom(DataType type, List keys) {
    BloomFilter filter = BloomFilter.create(keys.size(), FALSE_POSITIVES);
    for (int i = 0; i < keys.size(); i++) {
      filter.putLong(((Long) hash(new Literal(keys.get(i), type)).eval(null)).longValue());
    }
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try {
      filter.writeTo(out);
    } catch (IOException impossible) {
      throw new IllegalStateException(impossible);
    }
    return out.toByteArray();
  }

  /** The condition that the reader tests row groups and pages with; null if it has no form. */
  public static Expression reader(Expression column, List keys) {
    Expression bare = Casts.bare(column);
    if (!(bare instanceof Attribute) || keys.isEmpty()) return null;
    if (ValueTypes.isCounted(bare.dataType()) && ValueTypes.isCounted(column.dataType())) {
      return ranges(bare, keys);
    }
    if (bare != column || keys.size() > EXACT) return null;
    List literals = new ArrayList();
    for (int i = 0; i < keys.size(); i++) {
      literals.add(new Literal(keys.get(i), bare.dataType()));
    }
    if (!survive(literals)) return null;
    return new In(bare, ScalaInterop.seq(literals));
  }

  /** The keys as at most RANGES ranges, split at the greatest gaps. */
  private static Expression ranges(Expression column, List keys) {
    long[] sorted = sorted(column.dataType(), keys);
    if (sorted.length == 0) return null;
    TreeSet splits = new TreeSet(new ByGap(sorted));
    for (int i = 1; i < sorted.length; i++) {
      splits.add(Integer.valueOf(i));
      if (splits.size() >= RANGES) splits.remove(splits.first());
    }
    List from = new ArrayList(splits);
    from.add(Integer.valueOf(0));
    Collections.sort(from);
    Expression any = null;
    List ends = new ArrayList();
    for (int i = 0; i < from.size(); i++) {
      int first = ((Integer) from.get(i)).intValue();
      int last = (i + 1 < from.size() ? ((Integer) from.get(i + 1)).intValue() : sorted.length) - 1;
      Literal least = literal(column.dataType(), sorted[first]);
      Literal greatest = literal(column.dataType(), sorted[last]);
      Expression range =
          new And(new GreaterThanOrEqual(column, least), new LessThanOrEqual(column, greatest));
      any = any == null ? range : new Or(any, range);
      ends.add(least);
      ends.add(greatest);
    }
    return survive(ends) ? any : null;
  }

  /** Whether values are the same when Spark hands them to a reader, as Java has them. Not so: bytes
      that are no text, days that the calendar of java.sql.Date or its time zone leaves out, times
      far below the year 1. */
  private static boolean survive(List literals) {
    if (literals.isEmpty()) return true;
    DataType type = ((Literal) literals.get(0)).dataType();
    scala.Function1 toJava = CatalystTypeConverters$.MODULE$.createToScalaConverter(type);
    scala.Function1 back = CatalystTypeConverters$.MODULE$.createToCatalystConverter(type);
    try {
      for (int i = 0; i < literals.size(); i++) {
        Object value = ((Literal) literals.get(i)).value();
        if (!value.equals(back.apply(toJava.apply(value)))) return false;
      }
    } catch (ArithmeticException beyond) {
      return false;
    }
    return true;
  }

  /** The keys that the column's own type can hold. */
  private static long[] sorted(DataType type, List keys) {
    long most =
        type instanceof ByteType ? 0x7fL
        : type instanceof ShortType ? 0x7fffL
        : type.defaultSize() == 4 ? 0x7fffffffL
        : Long.MAX_VALUE;
    long[] out = new long[keys.size()];
    int n = 0;
    for (int i = 0; i < out.length; i++) {
      long value = ((Number) keys.get(i)).longValue();
      if (value >= -most - 1 && value <= most) out[n++] = value;
    }
    long[] fitting = java.util.Arrays.copyOf(out, n);
    java.util.Arrays.sort(fitting);
    return fitting;
  }

  private static Literal literal(DataType type, long value) {
    Object boxed =
        type instanceof ByteType ? (Object) Byte.valueOf((byte) value)
        : type instanceof ShortType ? (Object) Short.valueOf((short) value)
        : type.defaultSize() == 4 ? (Object) Integer.valueOf((int) value)
        : (Object) Long.valueOf(value);
    return new Literal(boxed, type);
  }

  /** Orders places by the gap before them, the smallest first. */
  private static final class ByGap implements Comparator {
    private final long[] sorted;

    ByGap(long[] sorted) {
      this.sorted = sorted;
    }

    public int compare(Object a, Object b) {
      int i = ((Integer) a).intValue();
      int j = ((Integer) b).intValue();
      int byGap = Long.compareUnsigned(sorted[i] - sorted[i - 1], sorted[j] - sorted[j - 1]);
      return byGap != 0 ? byGap : Integer.compare(i, j);
    }
  }
}
