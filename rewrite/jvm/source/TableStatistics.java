package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.predicate.Casts;
import rewrite.jvm.predicate.Composites;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.IndexedColumns;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.ListedValues;
import rewrite.jvm.predicate.ScalarSubqueries;
import rewrite.jvm.predicate.TopRows;
import rewrite.jvm.predicate.ValueTypes;
import rewrite.jvm.shims.Values;

/**
 * Asks tables themselves which files can hold some values: their partitions, and for columns
 * without an index the bounds in Delta's log and Iceberg's manifests.
 *
 * <p>Table formats use both for the query's own conditions, but not for the keys of joins. For an
 * IN list, Delta compares only its min and max; Iceberg ignores lists of more than 200. Bounds are read once for each version of a table.
 */
public final class TableStatistics {
  /** Of a table with more files the bounds are not read. */
  private static final int MOST_FILES = 200000;

  private final IndexClient client;
  private final Map kept = new Kept();

  public TableStatistics(IndexClient client) {
    this.client = client;
  }

  /** Whether a table may know in which files values of an expression are. */
  public boolean know(ScanSource read, Expression column) {
    if (read == null || !SkippingConf.usesStatistics()) return false;
    List path = Conditions.path(Casts.bare(column));
    if (path == null || !isOrdered(Casts.bare(column).dataType())) return false;
    if (read.isPartitioned(path)) return true;
    if (isIndexed(read, column) || !read.hasStatistics(path)) return false;
    Known known = known(read, path);
    return known == null || known.bounds != null && known.bounds.knows();
  }

  /** The share of the files whose bounds of a column overlap, as ColumnBounds says, where that is
      known without a look at the table; else 0. */
  public double overlap(ScanSource read, Expression column) {
    List path = Conditions.path(Casts.bare(column));
    if (read.isPartitioned(path) || isIndexed(read, column)) return 0;
    Known known = known(read, path);
    return known == null ? 0 : known.overlap;
  }

  /** Whether they can say something of a scan with these conditions and keys. */
  public boolean concern(ScanSource read, List filters, List keys) {
    if (read == null) return false;
    if (areAwaited(read, filters)) return true;
    for (int i = 0; i < filters.size(); i++) {
      KeyValues listed = ListedValues.of((Expression) filters.get(i));
      if (listed != null && know(read, listed.column())) return true;
    }
    for (int i = 0; i < keys.size(); i++) {
      Expression column = ((KeyValues) keys.get(i)).column();
      if (column != null && know(read, column)) return true;
    }
    return false;
  }

  /** Whether the values of subqueries in some conditions are worth waiting for: the index, or the
      table, can be asked about what they are compared with. A scan that waits equals no copy. */
  public boolean areAwaited(ScanSource read, List filters) {
    List late = ScalarSubqueries.of(filters);
    for (int i = 0; i < late.size(); i++) {
      List sides = ScalaInterop.list(((Expression) late.get(i)).children());
      for (int j = 0; j < sides.size(); j++) {
        Expression side = (Expression) sides.get(j);
        boolean isIndexed = isIndexed(read, side) || isIndexed(read, Inversion.column(side));
        if (isIndexed || know(read, side)) return true;
      }
    }
    return false;
  }

  /** What they prune of a scan; of what fails nothing. `late` are the conditions whose values
      the table format did not have: it compares only with those of the query's text. */
  public StatisticsResult ask(ScanSource read, List filters, List late, List keys) {
    StatisticsResult out = new StatisticsResult();
    List some = new ArrayList();
    for (int i = 0; i < filters.size(); i++) {
      KeyValues listed = ListedValues.of((Expression) filters.get(i));
      if (listed != null) some.add(listed);
    }
    some.addAll(keys);
    List columns = new ArrayList();
    for (int i = 0; i < some.size(); i++) {
      if (isThere((KeyValues) some.get(i))) columns.add(((KeyValues) some.get(i)).column());
    }
    for (int i = 0; i < late.size(); i++) {
      Comparison test = Comparison.of((Expression) late.get(i));
      if (test != null) columns.add(test.column());
    }
    prepare(read, columns);
    for (int i = 0; i < some.size(); i++) {
      add(out, read, (KeyValues) some.get(i));
    }
    for (int i = 0; i < late.size(); i++) {
      Expression condition = (Expression) late.get(i);
      add(out, read, Comparison.of(condition), condition);
    }
    return out;
  }

  private static boolean isThere(KeyValues values) {
    return values.values() != null || values.ranges() != null;
  }

  /** Reads the bounds of several columns at once. */
  private void prepare(ScanSource read, List columns) {
    List paths = new ArrayList();
    for (int i = 0; i < columns.size(); i++) {
      Expression column = (Expression) columns.get(i);
      List path = Conditions.path(Casts.bare(column));
      boolean isNew =
          know(read, column) && !isIndexed(read, column) && known(read, path) == null
              && !paths.contains(path);
      if (isNew) paths.add(path);
    }
    if (paths.size() < 2) return; // one is read when it is asked
    try {
      read(read, paths);
    } catch (Throwable failure) {
      Failures.passOn(failure); // else each is tried by itself
    }
  }

  private void add(StatisticsResult out, ScanSource read, KeyValues values) {
    if (!isThere(values) || !know(read, values.column())) return;
    List path = Conditions.path(Casts.bare(values.column()));
    try {
      if (read.isPartitioned(path)) {
        Set without = read.withoutPartition(path, values);
        out.add(label(values, "PARTITION"), values.dimension(), without);
      }
      ColumnBounds bounds = isIndexed(read, values.column()) ? null : bounds(read, path);
      if (bounds != null && bounds.knows()) {
        Set without = bounds.without(ColumnBounds.test(values));
        out.add(label(values, "STATISTICS"), values.dimension(), without);
      }
    } catch (Throwable failure) {
      Failures.passOn(failure); // else this says nothing
    }
  }

  private void add(StatisticsResult out, ScanSource read, Comparison test, Expression condition) {
    if (test == null || !know(read, test.column())) return;
    List path = Conditions.path(Casts.bare(test.column()));
    try {
      ColumnBounds bounds = isIndexed(read, test.column()) ? null : bounds(read, path);
      if (bounds == null || !bounds.knows()) return;
      out.add(Conditions.shape(condition) + "  STATISTICS", "", bounds.without(test));
    } catch (Throwable failure) {
      Failures.passOn(failure); // else this says nothing
    }
  }

  /** Whether a table may know which files hold the first rows of an order, or enough rows. */
  public boolean know(ScanSource read, TopRows top) {
    if (read == null || !SkippingConf.usesStatistics() || read.passesOverFiles()) return false;
    boolean isKnown =
        top.column() == null
            || isOrdered(top.column().dataType())
                && read.hasStatistics(Conditions.path(top.column()));
    return isKnown && areKnown(read, top.conditions());
  }

  /** Whether a table may know which files have only rows that meet some conditions. */
  private static boolean areKnown(ScanSource read, List conditions) {
    for (int i = 0; i < conditions.size(); i++) {
      Expression column = column((Expression) conditions.get(i));
      List path = column == null ? null : Conditions.path(column);
      // NaN compares with numbers, and is not within bounds.
      boolean isKnown =
          path != null && isOrdered(column.dataType())
              && !ValueTypes.isFloating(column.dataType()) && read.hasStatistics(path);
      if (!isKnown) return false;
    }
    return true;
  }

  /** What a condition is about; null: it is none that bounds can answer. */
  private static Expression column(Expression condition) {
    if (condition instanceof IsNotNull) return Casts.bare(((IsNotNull) condition).child());
    Comparison test = Comparison.of(condition);
    return test == null ? null : Casts.bare(test.column());
  }

  /** Adds what of the files that a scan lists cannot hold one of the first rows of an order, or is
      not needed to have enough rows. */
  public void add(StatisticsResult out, ScanSource read, TopRows top, Collection locations) {
    try {
      Expression first =
          top.column() == null ? column((Expression) top.conditions().get(0)) : top.column();
      ColumnBounds bounds = bounds(read, Conditions.path(first));
      if (bounds == null || !bounds.knows()) return;
      Set whole = null;
      for (int i = 0; i < top.conditions().size(); i++) {
        Set some = whole(read, top.column(), (Expression) top.conditions().get(i));
        if (whole == null) whole = some;
        whole.retainAll(some);
      }
      Set without =
          top.column() == null
              ? bounds.spared(top.rows(), locations, whole)
              : bounds.behind(top, locations, whole);
      out.add(top + "  STATISTICS", "", without);
    } catch (Throwable failure) {
      Failures.passOn(failure); // else this says nothing
    }
  }

  /** The locations of the files of which a condition leaves every row, or every row that has a
      value of the ordered column. */
  private Set whole(ScanSource read, Expression ordered, Expression condition) throws Exception {
    Expression column = column(condition);
    ColumnBounds bounds = bounds(read, Conditions.path(column));
    return bounds == null
        ? new HashSet()
        : bounds.whole(
            Comparison.of(condition), ordered != null && column.semanticEquals(ordered));
  }

  private static String label(KeyValues values, String kind) {
    boolean areRanges = values.ranges() != null;
    int size = areRanges ? values.ranges().size() : values.values().size();
    String count = String.format("%,d", new Object[] {Integer.valueOf(size)});
    String what = (areRanges ? " range" : " key") + (size == 1 ? "" : "s");
    String whose = values.dimension().isEmpty() ? "" : " of " + values.dimension();
    String column = Conditions.shape(Casts.bare(values.column()));
    return column + " IN (" + count + what + whose + ")  " + kind;
  }

  /** Whether a column, or an expression as it is, has an index. */
  public boolean isIndexed(ScanSource read, Expression column) {
    String identity = columns(read).identity(column);
    return identity != null && client.hasIndex(read.table(), identity);
  }

  /** Whether it has one, or a composite of it and others, up to so many together. */
  public boolean isIndexed(ScanSource read, Expression column, int columns) {
    if (isIndexed(read, column)) return true;
    List path = Conditions.path(column);
    return path != null && composites(read).have(path, columns);
  }

  /** The composites in a table's index. */
  public Composites composites(ScanSource read) {
    return new Composites(client.composites(read.table()), read.columns());
  }

  /** What a table's index can be asked about. */
  public IndexedColumns columns(ScanSource read) {
    return new IndexedColumns(read.columns(), client.expressions(read.table()));
  }

  /** Whether values that are equal to Spark are equal, and ordered, as bytes and numbers are. */
  private static boolean isOrdered(DataType type) {
    return MessageWriter.takes(type)
        && !(type instanceof StringType && !Values.areOrderedByBytes((StringType) type));
  }

  /** The bounds of a column at the version that is read; null: none, or not known. */
  private ColumnBounds bounds(ScanSource read, List path) throws Exception {
    Known known = known(read, path);
    if (known == null) {
      read(read, Collections.singletonList(path));
      known = known(read, path);
    }
    return known == null ? null : known.bounds;
  }

  /** Reads the bounds of columns, as far as the table has some. */
  private void read(ScanSource read, List paths) throws Exception {
    List some = new ArrayList();
    for (int i = 0; i < paths.size(); i++) {
      if (read.hasStatistics((List) paths.get(i))) some.add(paths.get(i));
    }
    if (some.isEmpty() || read.version() == null || read.files() > MOST_FILES) return;
    List found = read.bounds(some);
    synchronized (kept) {
      for (int i = 0; i < some.size(); i++) {
        kept.put(key(read, (List) some.get(i)), new Known((ColumnBounds) found.get(i)));
      }
    }
  }

  private static String key(ScanSource read, List path) throws Exception {
    return read.table() + "\n" + read.version() + "\n" + read.columns().identity(path);
  }

  /** What has been read of a column; null: nothing yet. */
  private Known known(ScanSource read, List path) {
    try {
      String key = key(read, path);
      synchronized (kept) {
        return (Known) kept.get(key);
      }
    } catch (Exception unknown) {
      return null;
    }
  }

  /** What is known of a column at a version. */
  private static final class Known {
    private final ColumnBounds bounds;
    private final double overlap;

    Known(ColumnBounds bounds) {
      this.bounds = bounds;
      overlap = bounds == null ? 1 : bounds.overlap();
    }

    int size() {
      return bounds == null ? 1 : 1 + bounds.size();
    }
  }

  /** The bounds of the columns that were asked last. */
  private static final class Kept extends LinkedHashMap {
    private static final long serialVersionUID = 1;

    private static final int FILES = 1000000;

    Kept() {
      super(16, 0.75f, true);
    }

    public Object put(Object key, Object known) {
      Object before = super.put(key, known);
      int files = 0;
      for (Iterator each = values().iterator(); each.hasNext(); ) {
        files += ((Known) each.next()).size();
      }
      for (Iterator each = entrySet().iterator(); files > FILES && size() > 1; ) {
        files -= ((Known) ((Map.Entry) each.next()).getValue()).size();
        each.remove();
      }
      return before;
    }
  }
}
