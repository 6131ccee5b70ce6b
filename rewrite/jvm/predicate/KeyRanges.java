package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.math.Ordering;

/** Ranges that a column has to be within one of, as joins on BETWEEN say. They are sorted, do not
    overlap, and include both ends; all begin with the least value, or end with the greatest, where
    the join says nothing of that end. */
public final class KeyRanges {
  /** As many as an index is asked about, beside single values: each is two conditions in explain.
      */
  static final int ASKED = 10;

  /** The fields of rows of ranges; one may be missing. */
  public static final String FROM = "from";
  public static final String TO = "to";

  private final DataType type;
  private final List from;
  private final List to;

  private KeyRanges(DataType type, List from, List to) {
    this.type = type;
    this.from = from;
    this.to = to;
  }

  /** Those of some rows. A row that is null, or has a null in it, compares with nothing. */
  public static KeyRanges of(StructType fields, Collection rows) {
    List from = fields.getFieldIndex(FROM).isDefined() ? new ArrayList() : null;
    List to = fields.getFieldIndex(TO).isDefined() ? new ArrayList() : null;
    DataType type = fields.fields()[0].dataType();
    for (Iterator each = rows.iterator(); each.hasNext(); ) {
      InternalRow row = (InternalRow) each.next();
      if (row == null || row.anyNull()) continue;
      if (from != null) from.add(row.get(0, type));
      if (to != null) to.add(row.get(fields.size() - 1, type));
    }
    return of(type, from, to);
  }

  /** Those from one of some values to the one at the same place of others; one may be null. */
  static KeyRanges of(DataType type, List from, List to) {
    boolean isOpen = from == null || to == null;
    Ordering order = TypeUtils$.MODULE$.getInterpretedOrdering(type);
    List pairs = new ArrayList();
    for (int i = 0; i < (from == null ? to : from).size(); i++) {
      Object first = (from == null ? to : from).get(i);
      Object last = (to == null ? from : to).get(i);
      if (order.compare(first, last) <= 0) pairs.add(new Object[] {first, last});
    }
    Collections.sort(pairs, new ByFirst(order));
    List firsts = new ArrayList();
    List lasts = new ArrayList();
    for (int i = 0; i < pairs.size(); i++) {
      Object[] pair = (Object[]) pairs.get(i);
      int end = lasts.size() - 1;
      if (end < 0 || !isOpen && order.compare(pair[0], lasts.get(end)) > 0) {
        firsts.add(pair[0]);
        lasts.add(pair[1]);
      } else if (order.compare(pair[1], lasts.get(end)) > 0) {
        lasts.set(end, pair[1]);
      }
    }
    return new KeyRanges(type, from == null ? null : firsts, to == null ? null : lasts);
  }

  /** At most `most` ranges, which together have all that these have: the closest become one. */
  public KeyRanges few(int most) {
    if (size() <= most) return this;
    List gaps = new ArrayList();
    for (int i = 1; i < size(); i++) {
      gaps.add(Integer.valueOf(i));
    }
    Collections.sort(gaps, new ByGap(from, to));
    List starts = new ArrayList(gaps.subList(0, most - 1));
    starts.add(Integer.valueOf(0));
    Collections.sort(starts);
    List firsts = new ArrayList();
    List lasts = new ArrayList();
    for (int i = 0; i < starts.size(); i++) {
      int next = i + 1 < starts.size() ? ((Integer) starts.get(i + 1)).intValue() : size();
      firsts.add(from.get(((Integer) starts.get(i)).intValue()));
      lasts.add(to.get(next - 1));
    }
    return new KeyRanges(type, firsts, lasts);
  }

  /** Ranges that together have all that these have: each that is a single value, and at most ASKED
      others. */
  public KeyRanges asked() {
    if (from == null || to == null) return this;
    List firsts = new ArrayList();
    List lasts = new ArrayList();
    List singles = new ArrayList();
    for (int i = 0; i < size(); i++) {
      if (isSingle(from.get(i), to.get(i))) {
        singles.add(from.get(i));
      } else {
        firsts.add(from.get(i));
        lasts.add(to.get(i));
      }
    }
    KeyRanges few = new KeyRanges(type, firsts, lasts).few(ASKED);
    List allFrom = new ArrayList(few.from);
    List allTo = new ArrayList(few.to);
    allFrom.addAll(singles);
    allTo.addAll(singles);
    return of(type, allFrom, allTo);
  }

  /** Whether a range has one value only. */
  public static boolean isSingle(Object from, Object to) {
    return from != null && from.equals(to);
  }

  /** How many there are. */
  public int size() {
    return from == null ? to.size() : from.size();
  }

  /** Pairs of where one begins and where it ends, null for no end. */
  public List pairs() {
    List out = new ArrayList();
    for (int i = 0; i < size(); i++) {
      out.add(new Object[] {from == null ? null : from.get(i), to == null ? null : to.get(i)});
    }
    return out;
  }

  /** Of what type their ends are. */
  public DataType type() {
    return type;
  }

  /** Where they begin, as Catalyst values; null: with the least value. */
  public List from() {
    return from;
  }

  /** Where they end, as Catalyst values; null: with the greatest value. */
  public List to() {
    return to;
  }

  private static final class ByFirst implements Comparator {
    private final Ordering order;

    ByFirst(Ordering order) {
      this.order = order;
    }

    public int compare(Object a, Object b) {
      return order.compare(((Object[]) a)[0], ((Object[]) b)[0]);
    }
  }

  /** Orders places by the gap before them, the widest first; where there is no telling, as between
      texts, as they come. */
  private static final class ByGap implements Comparator {
    private final List from;
    private final List to;

    ByGap(List from, List to) {
      this.from = from;
      this.to = to;
    }

    public int compare(Object a, Object b) {
      return Double.compare(gap((Integer) b), gap((Integer) a));
    }

    private double gap(Integer at) {
      Object end = to.get(at.intValue() - 1);
      return end instanceof Number
          ? ((Number) from.get(at.intValue())).doubleValue() - ((Number) end).doubleValue()
          : 0;
    }
  }
}
