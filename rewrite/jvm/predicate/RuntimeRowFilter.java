package rewrite.jvm.predicate;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Stream;
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
import org.apache.spark.sql.catalyst.expressions.XxHash64;
import org.apache.spark.sql.types.BinaryType$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.util.sketch.BloomFilter;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * Filters the remaining files of a pruned scan by the keys of a join: Spark tests each row, exactly
 * or by a bloom filter, and the Parquet reader tests a few ranges.
 *
 * <p>Neither filter replaces the join.
 */
public final class RuntimeRowFilter {
  /** More keys than this are looked up in a bloom filter. */
  private static final int MAX_EXACT = 10000;

  private static final double FALSE_POSITIVES = 0.01;

  /** Parquet tests a list of values up to spark.sql.parquet.pushdown.inFilterThreshold. */
  private static final int MAX_RANGES = 10;

  private RuntimeRowFilter() {}

  /** Return the condition on rows. */
  public static Expression rows(Expression column, List<Object> keys) {
    return keys.size() <= MAX_EXACT
        ? new InSet(column, set(keys))
        : new BloomFilterMightContain(
            new Literal(bloom(column.dataType(), keys), BinaryType$.MODULE$), hash(column));
  }

  private static scala.collection.immutable.Set<Object> set(List<Object> keys) {
    return ScalaInterop.asScala(keys).toSet();
  }

  private static Expression hash(Expression value) {
    return new XxHash64(ScalaInterop.asScala(List.of(value)));
  }

  private static byte[] bloom(DataType type, List<Object> keys) {
    BloomFilter filter = BloomFilter.create(keys.size(), FALSE_POSITIVES);
    for (Object key : keys) {
      filter.putLong(ValueTypes.toLong(hash(new Literal(key, type)).eval(null)));
    }
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try {
      filter.writeTo(out);
    } catch (IOException impossible) {
      throw new IllegalStateException(impossible);
    }
    return out.toByteArray();
  }

  /** Return the condition for the reader to test row groups and pages with, or null. */
  public static Expression reader(Expression column, List<Object> keys) {
    Expression bare = Casts.bare(column);
    if (!(bare instanceof Attribute) || keys.isEmpty()) return null;
    if (ValueTypes.isCounted(bare.dataType()) && ValueTypes.isCounted(column.dataType())) {
      return ranges(bare, keys);
    }
    if (bare != column || keys.size() > MAX_EXACT) return null;
    List<Expression> literals =
        keys.stream().<Expression>map(key -> new Literal(key, bare.dataType())).toList();
    return surviveConversion(bare.dataType(), keys)
        ? new In(bare, ScalaInterop.asScala(literals))
        : null;
  }

  /** Cover the keys by at most MAX_RANGES ranges, which are split at the widest gaps. */
  private static Expression ranges(Expression column, List<Object> keys) {
    DataType type = column.dataType();
    long[] sorted = sort(type, keys);
    if (sorted.length == 0) return null;
    TreeSet<Integer> splits =
        new TreeSet<>(
            Comparator.<Integer, Long>comparing(
                    i -> sorted[i] - sorted[i - 1], Long::compareUnsigned)
                .thenComparing(Comparator.naturalOrder()));
    for (int i = 1; i < sorted.length; i++) {
      splits.add(i);
      if (splits.size() >= MAX_RANGES) splits.pollFirst();
    }
    int[] starts = Stream.concat(Stream.of(0), splits.stream()).mapToInt(i -> i).sorted().toArray();
    List<Expression> operands = new ArrayList<>();
    List<Object> ends = new ArrayList<>();
    for (int i = 0; i < starts.length; i++) {
      int last = (i + 1 < starts.length ? starts[i + 1] : sorted.length) - 1;
      Object min = ValueTypes.integer(type, sorted[starts[i]]);
      Object max = ValueTypes.integer(type, sorted[last]);
      operands.add(
          new And(
              new GreaterThanOrEqual(column, new Literal(min, type)),
              new LessThanOrEqual(column, new Literal(max, type))));
      ends.addAll(List.of(min, max));
    }
    return surviveConversion(type, ends) ? Conditions.disjunction(operands) : null;
  }

  /** Whether values stay the same when Spark converts them to Java's for the reader. These do not:
      bytes that are not UTF-8, days that java.sql.Date or its time zone leaves out, and times far
      before the year 1. */
  private static boolean surviveConversion(DataType type, Collection<Object> values) {
    scala.Function1<Object, Object> toJava =
        CatalystTypeConverters$.MODULE$.createToScalaConverter(type);
    scala.Function1<Object, Object> toCatalyst =
        CatalystTypeConverters$.MODULE$.createToCatalystConverter(type);
    try {
      return values.stream().allMatch(value -> value.equals(toCatalyst.apply(toJava.apply(value))));
    } catch (ArithmeticException overflow) {
      return false;
    }
  }

  /** Return the keys that the column's own type can hold, in order. */
  private static long[] sort(DataType type, List<Object> keys) {
    long max = Long.MAX_VALUE >> 64 - 8 * type.defaultSize();
    long[] sorted =
        keys.stream()
            .mapToLong(ValueTypes::toLong)
            .filter(value -> value >= -max - 1 && value <= max)
            .toArray();
    Arrays.sort(sorted);
    return sorted;
  }
}
