package rewrite.jvm.predicate;

import java.time.Instant;
import java.time.ZoneId;
import java.time.zone.ZoneOffsetTransition;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.types.AtomicType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import scala.math.Ordering;

/**
 * Monotonic functions around a column, as in `year(ts) = 2026` or `10 - x > 5`: finds the ranges of
 * the column where their result compares with a constant.
 *
 * <p>It bisects all values of the column's type, and Spark evaluates the functions. The ranges may
 * hold more values than match, and never lack one. Values on which a function may fail are in all
 * ranges, because the query must reach them.
 */
final class Monotonic {
  private static final long SECOND = 1000000L; // in microseconds, as timestamps are
  private static final int MARGIN = 5; // days: more than clocks and three casts of times shift

  /** Casts inside a function that reads clocks: each may shift a time by more than a day. */
  private static final int MAX_CASTS = 2;

  /** The limit of results of a one-to-one function that are looked up one by one, in about fifteen
      evaluations each. */
  private static final int MAX_LOOKUPS = 100000;

  private final Expression column;
  private final List<OrderedFunction> functions; // innermost first
  private final boolean isDecreasing;
  private final ZoneId clocks;
  private final DataType type;
  private final DataType resultType;
  private final Ordering<Object> order;
  private final long min;
  private final long max;
  private final boolean isOneToOne;

  private Monotonic(
      Expression column, List<OrderedFunction> functions, boolean isDecreasing, ZoneId clocks,
      DataType resultType) {
    this.column = column;
    this.functions = functions;
    this.isDecreasing = isDecreasing;
    this.clocks = clocks;
    this.type = column.dataType();
    this.resultType = resultType;
    this.order = TypeUtils$.MODULE$.getInterpretedOrdering(resultType);
    this.min = ValueTypes.minPlace(type);
    this.max = ValueTypes.maxPlace(type);
    this.isOneToOne = functions.stream().allMatch(OrderedFunction::isOneToOne);
  }

  /** Return the functions in an expression; null if it is a column, or has another function. */
  static Monotonic of(Expression e) {
    List<OrderedFunction> functions = new ArrayList<>();
    boolean isDecreasing = false;
    ZoneId clocks = null;
    int casts = 0;
    Expression inner = e;
    while (Conditions.path(inner) == null) {
      OrderedFunction function = OrderedFunction.of(inner);
      if (function == null) return null;
      // Changes of the clocks are searched near the values of the column.
      if (clocks != null && (function.mayShift() || ++casts > MAX_CASTS)) return null;
      ZoneId zone = function.clocks();
      if (zone != null && !zone.getRules().isFixedOffset()) {
        if (clocks != null && !clocks.equals(zone)) return null;
        clocks = zone;
      }
      isDecreasing ^= function.isDecreasing();
      functions.add(0, function);
      inner = function.argument();
    }
    boolean isSupported =
        ValueTypes.isOrdinal(inner.dataType()) && e.dataType() instanceof AtomicType;
    return isSupported && !functions.isEmpty()
        ? new Monotonic(inner, functions, isDecreasing, clocks, e.dataType())
        : null;
  }

  DataType resultType() {
    return resultType;
  }

  Expression column() {
    return column;
  }

  /** Return the ranges of the column that hold all values whose result compares so with another;
      null if they are unknown. */
  List<Range> ranges(String op, Object result) {
    try {
      List<Span> spans = new ArrayList<>();
      if (op.equals("=")) {
        addBetween(spans, result, result);
      } else if (op.equals("<>")) {
        addBefore(spans, result, false);
        addAfter(spans, result, true);
      } else if (op.startsWith("<") != isDecreasing) {
        addBefore(spans, result, op.endsWith("="));
      } else {
        addAfter(spans, result, !op.endsWith("="));
      }
      return ranges(spans);
    } catch (NoResult unknown) {
      return null;
    }
  }

  /** Return the ranges of the column that hold all values with a result in one of some ranges; null
      if they are unknown. Results are merged into a few ranges unless a function is one-to-one. */
  List<Range> ranges(KeyRanges results) {
    boolean isExact = isOneToOne && results.size() <= MAX_LOOKUPS;
    try {
      List<Span> spans = new ArrayList<>();
      for (Range range : (isExact ? results : results.few(KeyRanges.MAX_RANGES)).ranges()) {
        addBetween(
            spans, range.min() == null ? OrderedFunction.BELOW : range.min(),
            range.max() == null ? OrderedFunction.ABOVE : range.max());
      }
      return ranges(spans);
    } catch (NoResult unknown) {
      return null;
    }
  }

  /** Add the values with results from one to another. */
  private void addBetween(List<Span> spans, Object first, Object last) {
    Long before = findLast(isDecreasing ? last : first, false);
    Long end = findLast(isDecreasing ? first : last, true);
    if (end != null && !end.equals(before)) addSpan(spans, before, end);
  }

  /** Add the values before those with a result, or up to them. */
  private void addBefore(List<Span> spans, Object result, boolean orAt) {
    Long end = findLast(result, orAt);
    if (end != null) addSpan(spans, null, end);
  }

  /** Add the values after those that come before a result. */
  private void addAfter(List<Span> spans, Object result, boolean orAt) {
    Long before = findLast(result, orAt);
    if (before == null || before < max) addSpan(spans, before, max);
  }

  /** Add the values after one, or all if it is null, up to another. */
  private void addSpan(List<Span> spans, Long before, long end) {
    long first = before == null ? min : widen(before + 1, -MARGIN);
    spans.add(new Span(first, end == max ? max : widen(end, MARGIN)));
  }

  /** Shift a value by some days if clocks change near it. */
  private long widen(long value, int days) {
    if (clocks == null) return value;
    long day = type instanceof DateType ? 1 : ValueTypes.DAY;
    double micros = (double) value * (type instanceof DateType ? ValueTypes.DAY : 1);
    double near = 2.0 * MARGIN * ValueTypes.DAY;
    if (!changes(clocks, (long) (micros - near), (long) (micros + near))) return value;
    double shifted = (double) value + days * (double) day;
    if (shifted <= min) return min;
    return shifted >= max ? max : value + days * day;
  }

  /** Whether the clocks of a zone change between two times in microseconds. */
  static boolean changes(ZoneId zone, long first, long last) {
    Instant before = Instant.ofEpochSecond(Math.floorDiv(first, SECOND));
    ZoneOffsetTransition next = zone.getRules().nextTransition(before);
    return next != null && next.toEpochSecond() <= Math.floorDiv(last, SECOND);
  }

  /** Return the last value whose result comes before another, or equals it, in the order of the
      column; null if all come after it. */
  private Long findLast(Object result, boolean orAt) {
    long low = min;
    long high = max;
    if (!isBefore(low, result, orAt)) return null;
    if (isBefore(high, result, orAt)) return high;
    // Start at the likeliest place, and go away from it in steps that double.
    long at = guess(result);
    for (long step = 1; at > low && at < high; step *= 2) {
      if (isBefore(at, result, orAt)) {
        low = at;
        at += step;
      } else {
        high = at;
        at -= step;
      }
    }
    while (high - low != 1) {
      long middle = low + (high - low >>> 1);
      if (isBefore(middle, result, orAt)) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }

  /** Return the value with a result if the functions are linear, as sums and products are. */
  private long guess(Object result) {
    if (!isOneToOne || !(result instanceof Number number)) return min;
    if (!(evaluate(0) instanceof Number zero) || !(evaluate(1) instanceof Number one)) return min;
    long slope = one.longValue() - zero.longValue();
    return slope == 0 ? min : Math.floorDiv(number.longValue() - zero.longValue(), slope);
  }

  private boolean isBefore(long value, Object other, boolean orAt) {
    Object result = evaluate(value);
    int compared = result == other ? 0
        : result == OrderedFunction.BELOW || other == OrderedFunction.ABOVE ? -1
        : result == OrderedFunction.ABOVE || other == OrderedFunction.BELOW ? 1
        : order.compare(result, other);
    return compared == 0 ? orAt : compared < 0 != isDecreasing;
  }

  private Object evaluate(long value) {
    Object at = ValueTypes.value(type, value);
    for (OrderedFunction function : functions) {
      boolean isOutside = at == OrderedFunction.BELOW || at == OrderedFunction.ABOVE;
      if (!isOutside) {
        at = function.apply(at);
      } else if (function.isDecreasing()) {
        at = at == OrderedFunction.BELOW ? OrderedFunction.ABOVE : OrderedFunction.BELOW;
      }
      if (at == null) throw new NoResult();
    }
    return at;
  }

  /** Sort spans and merge those that touch, except two single values. */
  private static List<Span> merge(List<Span> spans) {
    spans.sort(Comparator.comparingLong(Span::first));
    List<Span> out = new ArrayList<>();
    for (Span next : spans) {
      Span last = out.isEmpty() ? null : out.get(out.size() - 1);
      if (last != null && last.mergesWith(next)) {
        out.set(out.size() - 1, new Span(last.first, Math.max(last.last, next.last)));
      } else {
        out.add(next);
      }
    }
    return out;
  }

  /** Add the spans where the functions fail, and return all as ranges of values. */
  private List<Range> ranges(List<Span> spans) {
    addBefore(spans, isDecreasing ? OrderedFunction.ABOVE : OrderedFunction.BELOW, true);
    addAfter(spans, isDecreasing ? OrderedFunction.BELOW : OrderedFunction.ABOVE, false);
    return merge(spans).stream()
        .map(
            span ->
                new Range(
                    span.first == min ? null : ValueTypes.value(type, span.first),
                    span.last == max ? null : ValueTypes.value(type, span.last)))
        .toList();
  }

  /** The places of values from one to another, both included. */
  private record Span(long first, long last) {
    boolean mergesWith(Span next) {
      if (next.first <= last) return true;
      boolean touches = last != Long.MAX_VALUE && next.first == last + 1;
      return touches && (first != last || next.first != next.last);
    }
  }

  /** A value has no result: it is null, or the function failed for an unknown reason. */
  private static final class NoResult extends RuntimeException {
    private static final long serialVersionUID = 1;
  }
}
