package rewrite.jvm.predicate;

import java.time.Instant;
import java.time.ZoneId;
import java.time.zone.ZoneOffsetTransition;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.types.AtomicType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import scala.math.Ordering;

/**
 * Functions around a column that keep the order of its values, or turn it around, as in
 * `year(ts) = 2026` or `10 - x > 5`: between which values of the column their outcome is what.
 *
 * <p>That is found by bisection over every value that the type of the column has, where Spark
 * itself evaluates the functions. Ranges may have values more than that, and never lack one: those
 * on which a function fails, or would, are in all of them, as queries have to meet those.
 */
final class Monotonic {
  private static final long SECOND = 1000000L; // in microseconds, as timestamps are
  private static final int MARGIN = 5; // days: more than clocks and three casts between times move

  /** Casts inside of what reads clocks: each may move a time by a day and more. */
  private static final int CASTS = 2;

  /** Outcomes of which each is looked for, where it is of one value at most. Each takes fifteen
      evaluations or so. */
  private static final int EACH = 100000;

  private final Expression column;
  private final List functions; // the first is the innermost
  private final boolean turns;
  private final ZoneId clocks;
  private final DataType type;
  private final DataType outcomes;
  private final Ordering order;
  private final long least;
  private final long greatest;
  private final boolean isOneToOne;

  private Monotonic(
      Expression column, List functions, boolean turns, ZoneId clocks, DataType outcomes) {
    this.column = column;
    this.functions = functions;
    this.turns = turns;
    this.clocks = clocks;
    this.type = column.dataType();
    this.outcomes = outcomes;
    this.order = TypeUtils$.MODULE$.getInterpretedOrdering(outcomes);
    this.least = ValueTypes.least(type);
    this.greatest = ValueTypes.greatest(type);
    boolean each = true;
    for (int i = 0; i < functions.size(); i++) {
      each &= ((OrderedFunction) functions.get(i)).isOneToOne();
    }
    this.isOneToOne = each;
  }

  /** Those of an expression; null: it is something else, or a bare column. */
  static Monotonic of(Expression e) {
    List functions = new ArrayList();
    boolean turns = false;
    ZoneId clocks = null;
    int casts = 0;
    Expression inner = e;
    while (Conditions.path(inner) == null) {
      OrderedFunction function = OrderedFunction.of(inner);
      if (function == null) return null;
      // Where clocks change is looked for near the values of the column.
      if (clocks != null && (function.shifts() || ++casts > CASTS)) return null;
      ZoneId read = function.clocks();
      if (read != null && !read.getRules().isFixedOffset()) {
        if (clocks != null && !clocks.equals(read)) return null;
        clocks = read;
      }
      turns ^= function.turns();
      functions.add(0, function);
      inner = function.argument();
    }
    boolean known = ValueTypes.isOrdinal(inner.dataType()) && e.dataType() instanceof AtomicType;
    return known && !functions.isEmpty()
        ? new Monotonic(inner, functions, turns, clocks, e.dataType())
        : null;
  }

  /** Of what type the outcomes are. */
  DataType outcomes() {
    return outcomes;
  }

  /** The column inside. */
  Expression column() {
    return column;
  }

  /**
   * The ranges of the column that hold all values whose outcome compares so with another: pairs of
   * the least and the greatest value, where null is none; null: unknown.
   */
  List ranges(String op, Object outcome) {
    try {
      List ranges = new ArrayList();
      if (op.equals("=")) {
        between(ranges, outcome, outcome);
      } else if (op.equals("<>")) {
        before(ranges, outcome, false);
        after(ranges, outcome, true);
      } else if (op.startsWith("<") != turns) {
        before(ranges, outcome, op.endsWith("="));
      } else {
        after(ranges, outcome, !op.endsWith("="));
      }
      return values(ranges);
    } catch (NoOutcome unknown) {
      return null;
    }
  }

  /** As above, the ranges that hold all values whose outcome is within one of others: of each, if
      it is of one value, or else of a few that have them all. */
  List ranges(KeyRanges outcomes) {
    boolean isEach = isOneToOne && outcomes.size() <= EACH;
    KeyRanges asked = isEach ? outcomes : outcomes.few(KeyRanges.ASKED);
    try {
      List ranges = new ArrayList();
      for (int i = 0; i < asked.size(); i++) {
        Object from = asked.from() == null ? OrderedFunction.BELOW : asked.from().get(i);
        Object to = asked.to() == null ? OrderedFunction.ABOVE : asked.to().get(i);
        between(ranges, from, to);
      }
      return values(ranges);
    } catch (NoOutcome unknown) {
      return null;
    }
  }

  /** Adds the values of the outcomes from one to another. */
  private void between(List ranges, Object first, Object last) {
    Long before = last(turns ? last : first, false);
    Long end = last(turns ? first : last, true);
    if (end != null && !end.equals(before)) range(ranges, before, end);
  }

  /** Adds the values before those of an outcome. */
  private void before(List ranges, Object outcome, boolean orAt) {
    Long end = last(outcome, orAt);
    if (end != null) range(ranges, null, end);
  }

  /** Adds the values after those that are before an outcome. */
  private void after(List ranges, Object outcome, boolean orAt) {
    Long before = last(outcome, orAt);
    if (before == null || before.longValue() < greatest) {
      range(ranges, before, Long.valueOf(greatest));
    }
  }

  /** Adds the values after one, null for all, to another. */
  private void range(List ranges, Long before, Long end) {
    long first = before == null ? least : widened(before.longValue() + 1, -MARGIN);
    long last = end.longValue() == greatest ? greatest : widened(end.longValue(), MARGIN);
    ranges.add(new long[] {first, last});
  }

  /** A value some days off, if clocks are put back or forward near it. */
  private long widened(long value, int days) {
    if (clocks == null) return value;
    boolean isDay = type instanceof DateType;
    double micros = (double) value * (isDay ? ValueTypes.DAY : 1);
    double near = 2.0 * MARGIN * ValueTypes.DAY;
    if (!changes(clocks, (long) (micros - near), (long) (micros + near))) return value;
    double moved = (double) value + (isDay ? days : days * (double) ValueTypes.DAY);
    if (moved <= least) return least;
    return moved >= greatest ? greatest : value + (isDay ? days : days * ValueTypes.DAY);
  }

  /** Whether the clocks of a zone are put back or forward between two times, in microseconds. */
  static boolean changes(ZoneId zone, long first, long last) {
    Instant before = Instant.ofEpochSecond(Math.floorDiv(first, SECOND));
    ZoneOffsetTransition next = zone.getRules().nextTransition(before);
    return next != null && next.toEpochSecond() <= Math.floorDiv(last, SECOND);
  }

  /** The last value whose outcome is before another, or at it, in the order of the column; null:
      there is none. */
  private Long last(Object outcome, boolean orAt) {
    long low = least;
    long high = greatest;
    if (!isBefore(low, outcome, orAt)) return null;
    if (isBefore(high, outcome, orAt)) return Long.valueOf(high);
    // Where it is most likely first, then further off, in steps that double.
    long at = guess(outcome);
    for (long step = 1; at > low && at < high; step *= 2) {
      if (isBefore(at, outcome, orAt)) {
        low = at;
        at += step;
      } else {
        high = at;
        at -= step;
      }
    }
    while (high - low != 1) {
      long middle = low + (high - low >>> 1);
      if (isBefore(middle, outcome, orAt)) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return Long.valueOf(low);
  }

  /** The value that has an outcome if the functions are a line, as sums and products are. */
  private long guess(Object outcome) {
    if (!isOneToOne || !(outcome instanceof Number)) return least;
    Object zero = outcome(0);
    Object one = outcome(1);
    if (!(zero instanceof Number) || !(one instanceof Number)) return least;
    long first = ((Number) zero).longValue();
    long slope = ((Number) one).longValue() - first;
    return slope == 0 ? least : Math.floorDiv(((Number) outcome).longValue() - first, slope);
  }

  private boolean isBefore(long value, Object other, boolean orAt) {
    Object outcome = outcome(value);
    int compared = outcome == other ? 0
        : outcome == OrderedFunction.BELOW || other == OrderedFunction.ABOVE ? -1
        : outcome == OrderedFunction.ABOVE || other == OrderedFunction.BELOW ? 1
        : order.compare(outcome, other);
    return compared == 0 ? orAt : compared < 0 != turns;
  }

  private Object outcome(long value) {
    Object at = ValueTypes.value(type, value);
    for (int i = 0; i < functions.size(); i++) {
      OrderedFunction function = (OrderedFunction) functions.get(i);
      boolean isPast = at == OrderedFunction.BELOW || at == OrderedFunction.ABOVE;
      if (!isPast) {
        at = function.apply(at);
      } else if (function.turns()) {
        at = at == OrderedFunction.BELOW ? OrderedFunction.ABOVE : OrderedFunction.BELOW;
      }
      if (at == null) throw new NoOutcome();
    }
    return at;
  }

  /** Ranges in order, where those that touch have become one, other than two single values. */
  private static List merged(List ranges) {
    List sorted = new ArrayList(ranges);
    Collections.sort(sorted, new ByFirst());
    List out = new ArrayList();
    for (int i = 0; i < sorted.size(); i++) {
      long[] next = (long[]) sorted.get(i);
      long[] one = out.isEmpty() ? null : (long[]) out.get(out.size() - 1);
      boolean touches = one != null && one[1] != Long.MAX_VALUE && next[0] == one[1] + 1;
      boolean areSingle = touches && one[0] == one[1] && next[0] == next[1];
      if (one != null && next[0] <= one[1] || touches && !areSingle) {
        out.set(out.size() - 1, new long[] {one[0], Math.max(one[1], next[1])});
      } else {
        out.add(next);
      }
    }
    return out;
  }

  /** Some ranges and those of all that the functions fail on, as pairs of values. */
  private List values(List ranges) {
    before(ranges, turns ? OrderedFunction.ABOVE : OrderedFunction.BELOW, true);
    after(ranges, turns ? OrderedFunction.BELOW : OrderedFunction.ABOVE, false);
    List merged = merged(ranges);
    List out = new ArrayList();
    for (int i = 0; i < merged.size(); i++) {
      long[] range = (long[]) merged.get(i);
      out.add(
          new Object[] {
            range[0] == least ? null : ValueTypes.value(type, range[0]),
            range[1] == greatest ? null : ValueTypes.value(type, range[1])
          });
    }
    return out;
  }

  private static final class ByFirst implements Comparator {
    public int compare(Object a, Object b) {
      return Long.compare(((long[]) a)[0], ((long[]) b)[0]);
    }
  }

  /** A value has no outcome: it is null, or the function failed in a way that is not known. */
  private static final class NoOutcome extends RuntimeException {
    private static final long serialVersionUID = 1;
  }
}
