package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.Range;
import rewrite.jvm.predicate.TopRows;

/**
 * The min and max of a column in each file, as the table itself stores them.
 *
 * <p>They may be wider than the values, never narrower. They do not cover nulls and NaN. A file that
 * is not here may have any value.
 */
public final class ColumnBounds {
  private static final Bounds NO_VALUE = new Bounds(null, null, null, null);
  private static final Bounds ANY_VALUE = new Bounds(null, null, null, null);
  private static final UTF8String GREATEST =
      UTF8String.fromString(Character.toString(Character.MAX_CODE_POINT));

  private final DataType type;
  private final Map<String, Bounds> files = new HashMap<>();
  private boolean hasBounds;

  /** Those of a file, with the number of live rows, and at most of nulls among them; null: not
      known. */
  private record Bounds(Object lower, Object upper, Long rows, Long nulls) {
    boolean isBounded() {
      return this != NO_VALUE && this != ANY_VALUE;
    }

    /** Whether texts that are not valid may be above a bound: a log cuts "a\xff" to "a" and the
        greatest character, which is less. */
    boolean isOpen() {
      return upper instanceof UTF8String max && max.contains(GREATEST)
          || lower instanceof UTF8String min && min.contains(GREATEST);
    }

    boolean mayHaveNull() {
      return nulls == null || nulls != 0;
    }

    /** Returns how many rows are surely in the order before the far bound, or at it. */
    long countSureRows(boolean nullsFirst) {
      if (rows == null || !nullsFirst && nulls == null) return 0;
      return Math.max(0, nullsFirst ? rows : rows - nulls);
    }
  }

  /** `type` is that of the column to Spark. */
  ColumnBounds(DataType type) {
    this.type = type;
  }

  /** Adds a file in which all rows have one value. */
  void add(String location, Object value) {
    boolean isCovered = !SortedValues.isUncovered(value);
    add(location, isCovered ? new BoundRule.Range(value, value) : null, null, null);
  }

  /** Adds a file's bounds, as BoundRule widens them (null: it does not trust them), with the number
      of live rows, and at most of nulls among them; null: not known. */
  void add(String location, BoundRule.Range bounds, Long rows, Long nulls) {
    hasBounds |= bounds != null;
    store(
        location,
        bounds == null ? ANY_VALUE : new Bounds(bounds.lower(), bounds.upper(), rows, nulls));
  }

  /** Adds a file that has nothing but nulls. */
  void addNull(String location) {
    hasBounds = true;
    store(location, NO_VALUE);
  }

  private void store(String location, Bounds bounds) {
    // One location may be there twice, with other deletes: then neither counts.
    if (files.put(location, bounds) != null) files.put(location, ANY_VALUE);
  }

  /** Returns the locations of files in which all rows compare so (null: have a value), except, with
      `exceptNulls`, rows without a value. */
  Set<String> findMatching(Comparison test, boolean exceptNulls) {
    return find(
        file ->
            file.isBounded()
                && (exceptNulls || !file.mayHaveNull())
                && (test == null || test.includes(file.lower, file.upper)));
  }

  /**
   * Returns those of some locations that cannot hold one of the first rows of an order; `complete`
   * are the files that lose no row by other conditions; null: all.
   *
   * <p>Files are taken by their far bound until they surely have enough rows. A file that
   * begins behind that bound comes later. One that begins at it may have equal rows: it is read if
   * the order needs them.
   */
  Set<String> findBehind(TopRows top, Collection<String> locations, Set<String> complete) {
    Comparator<Object> order = TypeUtils$.MODULE$.getInterpretedOrdering(type);
    Comparator<Object> forward = top.isAscending() ? order : order.reversed();
    Function<Bounds, Object> begin = top.isAscending() ? Bounds::lower : Bounds::upper;
    Function<Bounds, Object> end = top.isAscending() ? Bounds::upper : Bounds::lower;
    Map<String, Bounds> bounded = new HashMap<>(files);
    bounded.keySet().retainAll(new HashSet<>(locations));
    bounded.values().removeIf(file -> !file.isBounded());
    List<String> byEnd =
        bounded.keySet().stream()
            .filter(file -> complete == null || complete.contains(file))
            .sorted(Comparator.comparing(file -> end.apply(bounded.get(file)), forward))
            .toList();
    Set<String> out = new HashSet<>(bounded.keySet());
    long rows = 0;
    Object last = null;
    for (String location : byEnd) {
      if (rows >= top.rows()) break;
      Bounds file = bounded.get(location);
      rows += file.countSureRows(top.nullsFirst());
      last = end.apply(file);
      out.remove(location);
    }
    if (rows < top.rows()) return new HashSet<>();
    Object bound = last;
    int most = top.needsTies() ? 0 : -1;
    out.removeIf(
        location -> {
          Bounds file = bounded.get(location);
          return top.nullsFirst() && file.mayHaveNull()
              || forward.compare(begin.apply(file), bound) <= most;
        });
    return out;
  }

  /**
   * Returns those of some locations that are not needed to have enough rows of any value: all but
   * the fewest that surely have them; empty where too few are known. `complete` are the files
   * that lose no row.
   */
  Set<String> findUnneededFiles(long rows, Collection<String> locations, Set<String> complete) {
    // A stable sort: of equal files the first of the list are read, as without this.
    List<String> byRows =
        locations.stream()
            .filter(complete::contains)
            .filter(location -> countRows(location) >= 0)
            .sorted(Comparator.comparingLong(location -> -countRows(location)))
            .toList();
    Set<String> out = new HashSet<>(locations);
    long found = 0;
    for (String location : byRows) {
      if (found >= rows) break;
      found += countRows(location);
      out.remove(location);
    }
    return found < rows ? new HashSet<>() : out;
  }

  private long countRows(String location) {
    Bounds file = files.get(location);
    return file == null || file.rows == null ? -1 : file.rows;
  }

  DataType type() {
    return type;
  }

  boolean hasBounds() {
    return hasBounds;
  }

  int size() {
    return files.size();
  }

  /**
   * Returns the fraction of the files whose bounds overlap with those of a file, on average: that
   * file alone where they are sorted by the column, 1 where they are in no order.
   */
  double computeOverlap() {
    if (files.isEmpty()) return 1;
    List<Bounds> bounded = files.values().stream().filter(Bounds::isBounded).toList();
    SortedValues from = new SortedValues(type, bounded.stream().map(Bounds::lower).toList());
    SortedValues to = new SortedValues(type, bounded.stream().map(Bounds::upper).toList());
    double sum = 0;
    for (Bounds file : bounded) {
      sum += from.countUpTo(file.upper) - to.countBelow(file.lower);
    }
    long any = files.values().stream().filter(file -> file == ANY_VALUE).count();
    return (any + (bounded.isEmpty() ? 0 : sum / bounded.size())) / files.size();
  }

  /** Returns the test for some values, or ranges. */
  static BoundsTest test(KeyValues values) {
    return values.ranges() == null
        ? new SortedValues(values.column().dataType(), values.values())
        : new RangeTest(values.ranges());
  }

  /** Returns the locations of the files that hold none of the values of a test. */
  Set<String> findExcludedFiles(BoundsTest test) {
    return find(
        file -> file == NO_VALUE || file.isBounded() && test.excludes(file.lower, file.upper));
  }

  /** Returns ranges that cover the values of some files (null: all), except nulls; null if one of the
      files may have any value. */
  KeyRanges findRanges(Collection<String> locations) {
    Set<Range> found = new HashSet<>();
    for (String location : locations == null ? files.keySet() : locations) {
      Bounds file = files.get(location);
      if (file == NO_VALUE) continue;
      if (file == null || !file.isBounded() || file.isOpen()) return null;
      found.add(new Range(file.lower, file.upper));
    }
    return KeyRanges.of(
        type, found.stream().map(Range::min).toList(), found.stream().map(Range::max).toList());
  }

  private Set<String> find(Predicate<Bounds> test) {
    return files.entrySet().stream()
        .filter(file -> test.test(file.getValue()))
        .map(Map.Entry::getKey)
        .collect(Collectors.toCollection(HashSet::new));
  }
}
