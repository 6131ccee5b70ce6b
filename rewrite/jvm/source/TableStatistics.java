package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.TimestampType;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.LookupResponse;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.RecentMap;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.predicate.Casts;
import rewrite.jvm.predicate.Composites;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.IndexedColumns;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.ListedValues;
import rewrite.jvm.predicate.PredicateEncoder;
import rewrite.jvm.predicate.ScalarSubqueries;
import rewrite.jvm.predicate.TopRows;
import rewrite.jvm.predicate.ValueTypes;
import rewrite.jvm.shims.Values;

/**
 * Looks up in tables themselves which files can have some values: in their partitions, and for
 * columns without an index in the bounds in Delta's log and Iceberg's manifests.
 *
 * <p>Table formats use both for the query's own conditions, but not for the keys of joins. For an
 * IN list, Delta compares only its min and max; Iceberg ignores lists of more than 200. Bounds are
 * read once for each version of a table.
 */
public final class TableStatistics {
  /** The bounds of a table with more files are not read. */
  public static final int MAX_FILES = 200_000;

  /** Files whose bounds are cached, of the columns that were used last. */
  private static final int CACHED_FILES = 1_000_000;
  private static final int CACHED_RANGES = 1000;

  /** For how long ranges of no use are not looked up: an index may have been refreshed since. */
  private static final long UNUSED_NANOS = TimeUnit.MINUTES.toNanos(1);

  /** The limit of the ranges that cover the values of a column, and of its single values. */
  private static final int MAX_RANGES = 32;
  private static final int MAX_VALUES = 1000;

  private final IndexClient client;
  private final Map<String, CachedBounds> cache = new LinkedHashMap<>(16, 0.75f, true);
  /** Ranges that pruned no file of a version of a table, by column. */
  private final Map<String, UnusedRanges> unused =
      Collections.synchronizedMap(new RecentMap<>(CACHED_RANGES));
  /** The values of all files of a version of a table, by column. They remain when the bounds of many
      large tables are more than the cache takes. */
  private final Map<String, AllValues> allValues =
      Collections.synchronizedMap(new RecentMap<>(CACHED_RANGES));

  /** The bounds of a column at a version; null: the table has none. */
  private record CachedBounds(ColumnBounds bounds, double overlap) {
    int size() {
      return bounds == null ? 1 : 1 + bounds.size();
    }

    /** The type of a column may change without a new version. */
    boolean areOf(Expression column) {
      return bounds == null || bounds.type().equals(Casts.bare(column).dataType());
    }
  }

  /** Ranges that cover the values of some files; null: one of them may have any value. */
  private record AllValues(int files, KeyRanges ranges) {}

  private record UnusedRanges(KeyRanges ranges, long time) {
    boolean areIn(KeyRanges others) {
      return System.nanoTime() - time < UNUSED_NANOS && others.cover(ranges);
    }
  }

  /** A lookup without which a query goes on. */
  private interface Attempt {
    void run() throws Exception;
  }

  public TableStatistics(IndexClient client) {
    this.client = client;
  }

  /** Whether a table may know which files have some values of an expression. */
  public boolean know(ScanSource read, Expression column) {
    if (read == null || !SkippingConf.usesStatistics()) return false;
    List<String> path = path(column);
    if (path == null || !isOrdered(Casts.bare(column).dataType())) return false;
    if (read.isPartitioned(path)) return true;
    if (isIndexed(read, column) || !read.hasStatistics(path)) return false;
    CachedBounds cached = cachedBounds(read, path);
    return cached == null || cached.bounds != null && cached.bounds.hasBounds();
  }

  /** Returns the fraction of the files whose bounds of a column overlap, as ColumnBounds computes
      it, where that is known without a look at the table; else 0. */
  public double overlap(ScanSource read, Expression column) {
    List<String> path = path(column);
    if (read.isPartitioned(path) || isIndexed(read, column)) return 0;
    CachedBounds cached = cachedBounds(read, path);
    return cached == null ? 0 : cached.overlap;
  }

  /** Whether they may prune a scan with these conditions and keys. */
  public boolean concern(
      ScanSource read, List<Expression> filters, List<? extends KeyValues> keys) {
    if (read == null) return false;
    return areAwaited(read, filters)
        || listedValues(filters).anyMatch(listed -> know(read, listed.column()))
        || keys.stream().anyMatch(key -> concern(read, key));
  }

  private boolean concern(ScanSource read, KeyValues key) {
    if (key.operands().isEmpty()) return key.column() != null && know(read, key.column());
    return key.operands().stream().allMatch(each -> know(read, Inversion.column(each)));
  }

  private static Stream<KeyValues> listedValues(List<Expression> filters) {
    return filters.stream().<KeyValues>map(ListedValues::of).filter(Objects::nonNull);
  }

  /** Whether to wait for the values of subqueries in some conditions: the index, or the table, has
      what they are compared with. A scan that waits equals no copy. */
  public boolean areAwaited(ScanSource read, List<Expression> filters) {
    return ScalarSubqueries.of(filters).stream()
        .flatMap(late -> ScalaInterop.asJava(late.children()).stream())
        .anyMatch(
            side ->
                isIndexed(read, side) || isIndexed(read, Inversion.column(side))
                    || know(read, side));
  }

  /** Returns what they prune of a scan; a lookup that fails prunes nothing. `late` are the
      conditions whose values the table format did not have: it compares only with those in the
      query's text. */
  public StatisticsResult ask(
      ScanSource read, List<Expression> filters, List<Expression> late,
      List<? extends KeyValues> keys) {
    List<KeyValues> sets =
        Stream.concat(listedValues(filters), keys.stream())
            .filter(set -> set.values() != null || set.ranges() != null)
            .filter(set -> know(read, set.column()))
            .toList();
    List<Expression> conditions =
        late.stream().filter(each -> isKnown(read, Comparison.of(each))).toList();
    readTogether(
        read,
        Stream.concat(
                sets.stream().map(KeyValues::column),
                conditions.stream().map(each -> Comparison.of(each).column()))
            .filter(column -> !isIndexed(read, column)));
    StatisticsResult out = new StatisticsResult();
    for (KeyValues set : sets) {
      attempt(() -> add(out, read, set));
    }
    for (Expression condition : conditions) {
      attempt(() -> {
        Comparison test = Comparison.of(condition);
        ColumnBounds bounds = partitionValues(read, test.column());
        if (bounds == null) bounds = unindexedBounds(read, test.column());
        if (bounds == null) return;
        out.add(Conditions.shape(condition) + "  STATISTICS", "", bounds.findExcludedFiles(test));
      });
    }
    return out;
  }

  /** Returns the locations of the files that the index and the table prune by conditions and keys;
      `late` are the conditions that the table format has not compared with its files. */
  public Set<String> findPrunable(
      ScanSource read, List<Expression> conditions, List<Expression> late,
      List<? extends KeyValues> keys) throws Exception {
    return findPrunable(read, lookUp(read, conditions, late, keys));
  }

  /** To list files takes longer than all else. */
  private static Set<String> findPrunable(ScanSource read, FileCounter counter) throws Exception {
    return counter.prunesAny() ? read.findPrunable(counter) : new HashSet<>();
  }

  private FileCounter lookUp(
      ScanSource read, List<Expression> conditions, List<Expression> late,
      List<? extends KeyValues> keys) {
    String refusal = client.refusal(read.table(), true);
    if (refusal == null && !isAnyIndexed(read, conditions, keys)) {
      refusal = "no condition has an indexed column";
    }
    LookupResponse response =
        refusal == null
            ? client.findPrunable(
                PredicateEncoder.request(
                    read.table(), columns(read), conditions, keys, List.of()))
            : LookupResponse.none(refusal);
    return new FileCounter(response, ask(read, conditions, late, keys));
  }

  /** Whether the index may have a column or an expression of some conditions or keys. */
  private boolean isAnyIndexed(
      ScanSource read, List<Expression> conditions, List<? extends KeyValues> keys) {
    if (!client.composites(read.table()).isEmpty()) return true;
    IndexedColumns columns = columns(read);
    return Stream.concat(conditions.stream(), keys.stream().map(KeyValues::column))
        .anyMatch(each -> each != null && mayUseIndex(read, columns, each));
  }

  private boolean mayUseIndex(ScanSource read, IndexedColumns columns, Expression e) {
    String identity = columns.identity(e);
    return identity != null && client.hasIndex(read.table(), identity)
        || e.dataType() instanceof ArrayType // its elements have no identity
        || ScalaInterop.asJava(e.children()).stream()
            .anyMatch(child -> mayUseIndex(read, columns, child));
  }

  /** Returns the locations of the files without any of some keys. Ranges that include others that
      pruned nothing are not looked up. */
  public Set<String> findPrunable(ScanSource read, KeyValues keys) throws Exception {
    KeyRanges ranges = read.version() == null ? null : keys.ranges();
    String key =
        String.join(
            "\n", key(read, path(keys.column())), client.revision(read.table()),
            keys.column().dataType().catalogString());
    UnusedRanges known = ranges == null ? null : unused.get(key);
    if (known != null && known.areIn(ranges)) return Set.of();
    FileCounter counter = lookUp(read, List.of(), List.of(), List.of(keys));
    // The table format may have left out those that they would prune.
    boolean areUnused =
        ranges != null && !counter.prunesAny() && coversAllFiles(read, keys, counter);
    if (areUnused) unused.put(key, new UnusedRanges(ranges, System.nanoTime()));
    return findPrunable(read, counter);
  }

  /** Whether keys were compared with all files of the version: not with the partitions of those that
      are read. */
  private boolean coversAllFiles(ScanSource read, KeyValues keys, FileCounter counter) {
    List<String> path = path(keys.column());
    if (read.isPartitioned(path)) return false;
    if (isAnyIndexed(read, List.of(), List.of(keys)) && !counter.isIndexed(read.files())) {
      return false;
    }
    return isIndexed(read, keys.column()) || cachedBounds(read, path) != null;
  }

  /** Returns the values of a column in some files (null: all that are read), nulls aside, as the
      version that is read has them in its partitions or bounds: at most 1000 single values, or 32
      ranges that cover them; null if a file may have any value. */
  public KeyRanges findRanges(ScanSource read, Expression column, Collection<String> files)
      throws Exception {
    DataType type = column.dataType();
    List<String> path = Conditions.path(column);
    if (!SkippingConf.usesStatistics() || path == null || !isOrdered(type)) return null;
    if (ValueTypes.isFloating(type)) return null; // bounds do not cover NaN, which equals NaN
    String key = key(read, path);
    AllValues all = files == null ? allValues.get(key) : null;
    // The table format may have left out some of the version's files.
    boolean areKnown =
        all != null && all.files == read.files()
            && (all.ranges == null || all.ranges.type().equals(type));
    if (areKnown) return all.ranges;
    ColumnBounds partitions = partitionValues(read, column); // of the files that are read
    if (partitions != null) return summarize(partitions.findRanges(files));
    ColumnBounds bounds = bounds(read, column);
    if (bounds == null) return null;
    boolean areAll = files == null && bounds.size() == read.files();
    KeyRanges found =
        summarize(bounds.findRanges(areAll || files != null ? files : read.locations()));
    if (areAll) allValues.put(key, new AllValues(bounds.size(), found));
    return found;
  }

  private static KeyRanges summarize(KeyRanges ranges) {
    return ranges == null ? null : ranges.summarize(MAX_VALUES, MAX_RANGES);
  }

  /** Returns the values of a column by which all files are partitioned; else null. Delta reads the
      text of a timestamp in the time zone of the moment. */
  private static ColumnBounds partitionValues(ScanSource read, Expression column)
      throws Exception {
    return Casts.bare(column).dataType() instanceof TimestampType
        ? null
        : read.partitionValues(path(column));
  }

  private boolean isKnown(ScanSource read, Comparison test) {
    return test != null && know(read, test.column());
  }

  /** Reads the bounds of columns at once, if several are not cached. */
  private void readTogether(ScanSource read, Stream<Expression> columns) {
    List<List<String>> paths =
        columns
            .map(TableStatistics::path)
            .filter(path -> cachedBounds(read, path) == null)
            .distinct()
            .toList();
    if (paths.size() > 1) attempt(() -> read(read, paths)); // if it fails, each is tried alone
  }

  private static void attempt(Attempt lookup) {
    try {
      lookup.run();
    } catch (Throwable failure) {
      Failures.passOn(failure);
    }
  }

  private void add(StatisticsResult out, ScanSource read, KeyValues set) throws Exception {
    List<String> path = path(set.column());
    if (read.isPartitioned(path)) {
      Set<String> without = read.withoutPartition(path, set);
      out.add(label(set, "PARTITION"), set.dimension(), without);
    }
    ColumnBounds bounds = unindexedBounds(read, set.column());
    if (bounds != null) {
      Set<String> without = bounds.findExcludedFiles(ColumnBounds.test(set));
      out.add(label(set, "STATISTICS"), set.dimension(), without);
    }
  }

  /** Whether a table may know which files have the first rows of an order, or enough rows. */
  public boolean know(ScanSource read, TopRows top) {
    if (read == null || !SkippingConf.usesStatistics() || read.passesOverFiles()) return false;
    if (top.column() != null) {
      List<String> path = path(top.column()); // null for `_pos`, which no file has a bound of
      boolean isKnown =
          path != null && isOrdered(top.column().dataType()) && read.hasStatistics(path);
      if (!isKnown) return false;
    }
    return areKnown(read, top.conditions());
  }

  /** Whether a table may know which files have only rows that meet some conditions. */
  private static boolean areKnown(ScanSource read, List<Expression> conditions) {
    for (Expression condition : conditions) {
      Expression column = column(condition);
      List<String> path = column == null ? null : path(column);
      // NaN compares with numbers, and bounds do not cover it.
      boolean isKnown =
          path != null && isOrdered(column.dataType())
              && !ValueTypes.isFloating(column.dataType()) && read.hasStatistics(path);
      if (!isKnown) return false;
    }
    return true;
  }

  /** Returns the column of a condition; null if bounds cannot decide it. */
  private static Expression column(Expression condition) {
    if (condition instanceof IsNotNull notNull) return Casts.bare(notNull.child());
    Comparison test = Comparison.of(condition);
    return test == null ? null : Casts.bare(test.column());
  }

  private static List<String> path(Expression column) {
    return Conditions.path(Casts.bare(column));
  }

  /** Adds the files that a scan lists and that none of some rows needs. */
  public void add(
      StatisticsResult out, ScanSource read, List<TopRows> tops, Collection<String> locations) {
    if (locations.size() < 2) return; // one file is always needed: its bounds are not read
    attempt(() -> {
      readTogether(
          read,
          tops.stream()
              .flatMap(
                  top ->
                      Stream.concat(
                          Stream.ofNullable(top.column()),
                          top.conditions().stream().map(TableStatistics::column))));
      Set<String> without = new HashSet<>(locations);
      for (TopRows top : tops) {
        Set<String> some = findUnneeded(read, top, locations);
        if (some == null) return;
        without.retainAll(some);
        if (without.isEmpty()) return;
      }
      String what = tops.stream().map(TopRows::toString).collect(Collectors.joining(", "));
      out.add(what + "  STATISTICS", "", without);
    });
  }

  /** Returns the files that cannot have one of the first rows of an order, or that are not needed to
      have enough rows; null: not known. */
  private Set<String> findUnneeded(ScanSource read, TopRows top, Collection<String> locations)
      throws Exception {
    List<Expression> conditions = top.conditions();
    Expression first = top.column() == null ? column(conditions.get(0)) : top.column();
    ColumnBounds bounds = bounds(read, first);
    if (bounds == null || !bounds.hasBounds()) return null;
    Set<String> complete = null;
    for (Expression condition : conditions) {
      Set<String> some = findComplete(read, top.column(), condition);
      if (complete == null) complete = some;
      complete.retainAll(some);
    }
    return top.column() == null
        ? bounds.findUnneededFiles(top.rows(), locations, complete)
        : bounds.findBehind(top, locations, complete);
  }

  /** Returns the locations of the files in which a condition holds for every row, or for every row
      with a value of the ordered column. */
  private Set<String> findComplete(ScanSource read, Expression ordered, Expression condition)
      throws Exception {
    Expression column = column(condition);
    ColumnBounds bounds = bounds(read, column);
    return bounds == null
        ? new HashSet<>()
        : bounds.findMatching(
            Comparison.of(condition), ordered != null && column.semanticEquals(ordered));
  }

  private static String label(KeyValues set, String source) {
    boolean areRanges = set.ranges() != null;
    int size = areRanges ? set.ranges().size() : set.values().size();
    String what = (areRanges ? " range" : " key") + (size == 1 ? "" : "s");
    String whose = set.dimension().isEmpty() ? "" : " of " + set.dimension();
    String column = Conditions.shape(Casts.bare(set.column()));
    return column + " IN (" + String.format("%,d", size) + what + whose + ")  " + source;
  }

  /** Whether a column, or an expression as it is, has an index. */
  public boolean isIndexed(ScanSource read, Expression column) {
    String identity = columns(read).identity(column);
    return identity != null && client.hasIndex(read.table(), identity);
  }

  /** Whether it has one, or is in a multi-column index on not more than `columns` columns. */
  public boolean isIndexed(ScanSource read, Expression column, int columns) {
    if (isIndexed(read, column)) return true;
    List<String> path = Conditions.path(column);
    return path != null && composites(read).have(path, columns);
  }

  public Composites composites(ScanSource read) {
    return new Composites(client.composites(read.table()), read.columns());
  }

  /** Returns what a table's index may have. */
  public IndexedColumns columns(ScanSource read) {
    return new IndexedColumns(read.columns(), client.expressions(read.table()));
  }

  /** Whether values that are equal to Spark are equal, and ordered, as bytes and numbers are. */
  private static boolean isOrdered(DataType type) {
    return MessageWriter.takes(type)
        && !(type instanceof StringType text && !Values.areOrderedByBytes(text));
  }

  /** Returns the bounds of a column without an index; null: it has one, or bounds are not known. */
  private ColumnBounds unindexedBounds(ScanSource read, Expression column) throws Exception {
    ColumnBounds bounds = isIndexed(read, column) ? null : bounds(read, column);
    return bounds != null && bounds.hasBounds() ? bounds : null;
  }

  /** Returns the bounds of a column at the version that is read; null: none, or not known. */
  private ColumnBounds bounds(ScanSource read, Expression column) throws Exception {
    List<String> path = path(column);
    CachedBounds cached = cachedBounds(read, path);
    if (cached == null || !cached.areOf(column)) {
      read(read, List.of(path));
      cached = cachedBounds(read, path);
    }
    return cached == null ? null : cached.bounds;
  }

  /** Reads the bounds of columns, as far as the table has some. */
  private void read(ScanSource read, List<List<String>> paths) throws Exception {
    List<List<String>> some = paths.stream().filter(read::hasStatistics).toList();
    if (some.isEmpty() || read.version() == null || read.files() > MAX_FILES) return;
    List<String> keys = new ArrayList<>();
    for (List<String> path : some) keys.add(key(read, path));
    List<ColumnBounds> found = read.bounds(some);
    for (int i = 0; i < keys.size(); i++) {
      ColumnBounds bounds = found.get(i);
      store(keys.get(i), new CachedBounds(bounds, bounds == null ? 1 : bounds.computeOverlap()));
    }
  }

  private void store(String key, CachedBounds cached) {
    synchronized (cache) {
      cache.put(key, cached);
      int files = cache.values().stream().mapToInt(CachedBounds::size).sum();
      Iterator<CachedBounds> oldest = cache.values().iterator();
      while (files > CACHED_FILES && cache.size() > 1) {
        files -= oldest.next().size();
        oldest.remove();
      }
    }
  }

  private static String key(ScanSource read, List<String> path) throws Exception {
    return read.table() + "\n" + read.version() + "\n" + read.columns().identity(path);
  }

  /** Returns what was read of a column; null: nothing yet. */
  private CachedBounds cachedBounds(ScanSource read, List<String> path) {
    try {
      String key = key(read, path);
      synchronized (cache) {
        return cache.get(key);
      }
    } catch (Exception unknown) {
      return null;
    }
  }
}
