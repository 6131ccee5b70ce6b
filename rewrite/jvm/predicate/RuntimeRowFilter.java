package rewrite.jvm.predicate;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.TreeSet;
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
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;
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

  private static final long YEAR_ONE = -62135596800000000L; // microseconds from 1970

  private RuntimeRowFilter() {}

  /** The condition on rows. */
  public static Expression rows(Expression column, List keys) {
    return keys.size() <= EXACT
        ? new InSet(column, set(keys))
        : new BloomFilterMightContain(
            new Literal(bloom(column.dataType(), keys), BinaryType$.MODULE$), hash(column));
  }

  private static scala.collection.immutable.Set set(List keys) {
    return (scala.collection.immutable.Set)
        scala.jdk.javaapi.CollectionConverters.asScala(new HashSet(keys)).toSet();
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
      Object key = keys.get(i);
      // Spark hands the reader texts as Java has them, where bytes that are no text change.
      if (key instanceof UTF8String && !((UTF8String) key).isValid()) return null;
      literals.add(new Literal(key, bare.dataType()));
    }
    return new In(bare, ScalaInterop.seq(literals));
  }

  /** The keys as at most RANGES ranges, split at the greatest gaps. */
  private static Expression ranges(Expression column, List keys) {
    long[] sorted = sorted(column.dataType(), keys);
    if (sorted.length == 0) return null;
    // Spark turns the range into java.sql.Timestamp, which fails far below the year 1.
    if (column.dataType() instanceof TimestampType && sorted[0] < YEAR_ONE) return null;
    TreeSet splits = new TreeSet(new ByGap(sorted));
    for (int i = 1; i < sorted.length; i++) {
      splits.add(Integer.valueOf(i));
      if (splits.size() >= RANGES) splits.remove(splits.first());
    }
    List from = new ArrayList(splits);
    from.add(Integer.valueOf(0));
    Collections.sort(from);
    Expression any = null;
    for (int i = 0; i < from.size(); i++) {
      int first = ((Integer) from.get(i)).intValue();
      int last = (i + 1 < from.size() ? ((Integer) from.get(i + 1)).intValue() : sorted.length) - 1;
      Expression range =
          new And(
              new GreaterThanOrEqual(column, literal(column.dataType(), sorted[first])),
              new LessThanOrEqual(column, literal(column.dataType(), sorted[last])));
      any = any == null ? range : new Or(any, range);
    }
    return any;
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
