package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.math.Ordering;

/**
 * The ranges of a join on BETWEEN; a column must be within one of them. They are sorted, do not
 * overlap, and include both ends.
 *
 * @param type the type of the ends
 * @param from where the ranges begin, as Catalyst values; null if all are open there
 * @param to where the ranges end, as Catalyst values; null if all are open there
 */
public record KeyRanges(DataType type, List<Object> from, List<Object> to) {
  /** The limit of the ranges, not counting single values, that are looked up in an index: explain
      shows each as two conditions. */
  static final int MAX_RANGES = 10;

  /** The fields of rows of ranges; one may be missing. */
  public static final String FROM = "from";
  public static final String TO = "to";

  /** Read ranges from rows. A row that is null, or has a null, compares with nothing. */
  public static KeyRanges of(StructType fields, Collection<InternalRow> rows) {
    DataType type = fields.fields()[0].dataType();
    List<InternalRow> valid = rows.stream().filter(row -> row != null && !row.anyNull()).toList();
    int last = fields.size() - 1;
    List<Object> first = valid.stream().map(row -> row.get(0, type)).toList();
    List<Object> other = valid.stream().map(row -> row.get(last, type)).toList();
    return of(
        type, fields.getFieldIndex(FROM).isDefined() ? first : null,
        fields.getFieldIndex(TO).isDefined() ? other : null);
  }

  /** Build ranges from their ends, which are at the same places of two lists; one may be null. */
  public static KeyRanges of(DataType type, List<Object> from, List<Object> to) {
    boolean isOpen = from == null || to == null;
    List<Object> mins = from == null ? to : from;
    List<Object> maxs = to == null ? from : to;
    Ordering<Object> order = TypeUtils$.MODULE$.getInterpretedOrdering(type);
    List<Range> sorted =
        IntStream.range(0, mins.size())
            .filter(i -> order.compare(mins.get(i), maxs.get(i)) <= 0)
            .mapToObj(i -> new Range(mins.get(i), maxs.get(i)))
            .sorted(Comparator.comparing(Range::min, order))
            .toList();
    List<Object> starts = new ArrayList<>();
    List<Object> ends = new ArrayList<>();
    for (Range range : sorted) {
      int end = ends.size() - 1;
      if (end < 0 || !isOpen && order.compare(range.min(), ends.get(end)) > 0) {
        starts.add(range.min());
        ends.add(range.max());
      } else if (order.compare(range.max(), ends.get(end)) > 0) {
        ends.set(end, range.max());
      }
    }
    return new KeyRanges(type, from == null ? null : starts, to == null ? null : ends);
  }

  private static KeyRanges of(DataType type, List<Range> ranges) {
    return of(
        type, ranges.stream().map(Range::min).toList(), ranges.stream().map(Range::max).toList());
  }

  /** Merge the closest ranges until there are at most `most`. */
  public KeyRanges few(int most) {
    if (size() <= most) return this;
    List<Integer> starts =
        new ArrayList<>(
            IntStream.range(1, size())
                .boxed()
                .sorted(Comparator.<Integer>comparingDouble(this::gapBefore).reversed())
                .limit(most - 1L)
                .toList());
    starts.add(0);
    Collections.sort(starts);
    List<Object> mins = starts.stream().map(from::get).toList();
    List<Object> maxs = new ArrayList<>();
    for (int start : starts.subList(1, starts.size())) {
      maxs.add(to.get(start - 1));
    }
    maxs.add(to.get(size() - 1));
    return new KeyRanges(type, mins, maxs);
  }

  /** Return these if they are at most `values` single values; else at most `ranges` that cover them. */
  public KeyRanges summarize(int values, int ranges) {
    boolean areValues = size() <= values && ranges().stream().allMatch(Range::isSingle);
    return areValues ? this : few(ranges);
  }

  /** Return the gap before a range; 0 if it is unknown, as between texts. */
  private double gapBefore(int at) {
    return to.get(at - 1) instanceof Number end
        ? ValueTypes.toDouble(from.get(at)) - end.doubleValue()
        : 0;
  }

  /** Return ranges that cover these: each single value, and at most MAX_RANGES others. */
  public KeyRanges coarsen() {
    if (from == null || to == null) return this;
    Map<Boolean, List<Range>> bySingle =
        ranges().stream().collect(Collectors.partitioningBy(Range::isSingle));
    List<Range> out = new ArrayList<>(bySingle.get(true));
    out.addAll(of(type, bySingle.get(false)).few(MAX_RANGES).ranges());
    return of(type, out);
  }

  /** Whether each of some ranges of the same type is within one of these. Both have all ends. */
  public boolean cover(KeyRanges others) {
    Ordering<Object> order = TypeUtils$.MODULE$.getInterpretedOrdering(type);
    List<Range> own = ranges();
    return others.ranges().stream()
        .allMatch(
            other ->
                own.stream()
                    .anyMatch(
                        each ->
                            order.compare(each.min(), other.min()) <= 0
                                && order.compare(each.max(), other.max()) >= 0));
  }

  public int size() {
    return from == null ? to.size() : from.size();
  }

  /** Return the ranges in order. */
  public List<Range> ranges() {
    return IntStream.range(0, size())
        .mapToObj(i -> new Range(from == null ? null : from.get(i), to == null ? null : to.get(i)))
        .toList();
  }
}
