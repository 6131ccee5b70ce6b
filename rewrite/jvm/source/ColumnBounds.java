package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.types.DataType;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.TopRows;
import scala.math.Ordering;

/**
 * The least and the greatest value of a column in each file, as the table itself knows them.
 *
 * <p>They may be wider than the values, never narrower. Nulls and NaN are not within them. A file
 * that is not here may have any value.
 */
public final class ColumnBounds {
  private static final Object[] NO_VALUE = new Object[0];
  private static final Object[] ANY_VALUE = new Object[1];

  private final DataType type;
  private final Map files = new HashMap();
  private boolean knows;

  /** `type` is that of the column to Spark. */
  ColumnBounds(DataType type) {
    this.type = type;
  }

  /** Notes that a file has nothing but a value. */
  void add(String location, Object value) {
    boolean isKnown = !SortedValues.isUntold(value);
    add(location, isKnown ? new Object[] {value, value} : null, null, null);
  }

  /** Notes a file's bounds, as far as BoundRule takes them (null: not at all), with the number of
      rows that are not deleted, and of nulls among them at most; null: not known. */
  void add(String location, Object[] bounds, Long rows, Long nulls) {
    knows |= bounds != null;
    put(location, bounds == null ? ANY_VALUE : new Object[] {bounds[0], bounds[1], rows, nulls});
  }

  /** Notes that a file has nothing but nulls. */
  void addNull(String location) {
    knows = true;
    put(location, NO_VALUE);
  }

  /** One location may be there twice, with other deletes: then only this much is known. */
  private void put(String location, Object[] bounds) {
    if (files.put(location, bounds) != null) files.put(location, ANY_VALUE);
  }

  /** The locations of those whose rows all compare so (null: have a value); `nullsAside`: other
      than rows without a value. */
  Set whole(Comparison test, boolean nullsAside) {
    Set out = new HashSet();
    for (Iterator each = files.entrySet().iterator(); each.hasNext(); ) {
      Map.Entry entry = (Map.Entry) each.next();
      Object[] file = (Object[]) entry.getValue();
      if (file.length < 2 || !nullsAside && !Long.valueOf(0).equals(file[3])) continue;
      if (test == null || test.includes(file[0], file[1])) out.add(entry.getKey());
    }
    return out;
  }

  /**
   * The locations of those that cannot hold one of the first rows of an order, as far as they are
   * among some; `whole` are those that lose no row by other conditions; null: all.
   *
   * <p>Files are taken by the end of their bounds until they surely have as many rows as wanted.
   * What begins behind that end comes later. What begins at it is read: rows may be alike.
   */
  Set behind(TopRows top, Collection locations, Set whole) {
    Ordering order = TypeUtils$.MODULE$.getInterpretedOrdering(type);
    final Comparator forward = top.isAscending() ? order : order.reverse();
    final int near = top.isAscending() ? 0 : 1;
    Map known = new HashMap();
    List byEnd = new ArrayList();
    for (Iterator each = locations.iterator(); each.hasNext(); ) {
      Object location = each.next();
      Object[] file = (Object[]) files.get(location);
      if (file == null || file.length < 2) continue;
      known.put(location, file);
      if (whole == null || whole.contains(location)) byEnd.add(file);
    }
    Collections.sort(byEnd, new Comparator() {
      public int compare(Object a, Object b) {
        return forward.compare(((Object[]) a)[1 - near], ((Object[]) b)[1 - near]);
      }
    });
    long rows = 0;
    Object end = null;
    for (int i = 0; i < byEnd.size() && rows < top.rows(); i++) {
      Object[] file = (Object[]) byEnd.get(i);
      rows += surely(file, top.nullsFirst());
      end = file[1 - near];
    }
    Set out = new HashSet();
    if (rows < top.rows()) return out;
    for (Iterator each = known.entrySet().iterator(); each.hasNext(); ) {
      Map.Entry entry = (Map.Entry) each.next();
      Object[] file = (Object[]) entry.getValue();
      boolean hasNull = !Long.valueOf(0).equals(file[3]);
      if (top.nullsFirst() && hasNull) continue;
      if (forward.compare(file[near], end) > 0) out.add(entry.getKey());
    }
    return out;
  }

  /**
   * The locations of those, of some, that may be left out of a search for any so many rows: all but
   * the fewest that surely have as many; none where these are not known. `whole` are those that
   * lose no row.
   */
  Set spared(long rows, Collection locations, Set whole) {
    List byRows = new ArrayList();
    for (Iterator each = locations.iterator(); each.hasNext(); ) {
      Object location = each.next();
      Object[] file = (Object[]) files.get(location);
      if (file == null || file.length < 2 || file[2] == null) continue;
      if (whole.contains(location)) byRows.add(new Object[] {location, file[2]});
    }
    // A stable sort: of files that are alike the first of the list are read, as without this.
    Collections.sort(byRows, new Comparator() {
      public int compare(Object a, Object b) {
        return ((Long) ((Object[]) b)[1]).compareTo((Long) ((Object[]) a)[1]);
      }
    });
    Set out = new HashSet(locations);
    long found = 0;
    for (int i = 0; i < byRows.size() && found < rows; i++) {
      found += ((Long) ((Object[]) byRows.get(i))[1]).longValue();
      out.remove(((Object[]) byRows.get(i))[0]);
    }
    return found < rows ? new HashSet() : out;
  }

  /** How many rows of a file are surely in the order before the end of its bounds, or at it. */
  private static long surely(Object[] file, boolean nullsFirst) {
    if (file[2] == null || !nullsFirst && file[3] == null) return 0;
    long rows = ((Long) file[2]).longValue();
    return Math.max(0, nullsFirst ? rows : rows - ((Long) file[3]).longValue());
  }

  /** Whether something is known of a file. */
  boolean knows() {
    return knows;
  }

  /** How many files there are. */
  int size() {
    return files.size();
  }

  /**
   * The share of the files (0 to 1) whose bounds overlap with those of a file, on average: that
   * file alone where they are sorted by the column, 1 where they are in no order.
   */
  double overlap() {
    List lowers = new ArrayList();
    List uppers = new ArrayList();
    int any = 0;
    for (Iterator each = files.values().iterator(); each.hasNext(); ) {
      Object[] bounds = (Object[]) each.next();
      if (bounds == ANY_VALUE) any++;
      if (bounds.length < 2) continue;
      lowers.add(bounds[0]);
      uppers.add(bounds[1]);
    }
    if (files.isEmpty()) return 1;
    SortedValues from = new SortedValues(type, lowers);
    SortedValues to = new SortedValues(type, uppers);
    double sum = 0;
    for (int i = 0; i < lowers.size(); i++) {
      sum += from.upTo(uppers.get(i)) - to.below(lowers.get(i));
    }
    double within = lowers.isEmpty() ? 0 : sum / lowers.size();
    return (any + within) / files.size();
  }

  /** What to ask bounds about some values, or ranges. */
  static BoundsTest test(KeyValues values) {
    return values.ranges() == null
        ? (BoundsTest) new SortedValues(values.column().dataType(), values.values())
        : new RangeTest(values.ranges());
  }

  /** The locations of those that are proven to hold none of the values that are asked for. */
  Set without(BoundsTest test) {
    Set out = new HashSet();
    for (Iterator each = files.entrySet().iterator(); each.hasNext(); ) {
      Map.Entry file = (Map.Entry) each.next();
      Object[] bounds = (Object[]) file.getValue();
      boolean none =
          bounds == NO_VALUE || bounds != ANY_VALUE && test.excludes(bounds[0], bounds[1]);
      if (none) out.add(file.getKey());
    }
    return out;
  }
}
