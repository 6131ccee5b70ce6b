package rewrite.jvm.join;

import java.math.BigInteger;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.source.ReportedSize;

/** What it costs to collect keys from a filtering side, and whether they can be few. */
record SideCost(FilteringSide side) {
  /** Whether keys are collected whatever they cost. Tests of results set it: most of their tables
      are too small for any benefit. */
  static boolean isIgnored;

  /** How many times larger a scan must be than a filtering side without a condition. */
  private static final int MIN_RATIO = 100;
  private static final int MIN_RATIO_IF_CHEAP = 10;

  /** Sides with fewer bytes are never too expensive to read again. Tests of costs set it, because
      their tables are smaller. */
  static long cheapBytes = 1 << 20;

  /** Return the bytes that reading the side costs: of each table all bytes, and once more for each
      shuffle. */
  BigInteger overhead() {
    return overhead(side.plan(), null, List.of(), 1);
  }

  /** Return the bytes that reading the side costs if the conditions on its tables prune files. */
  BigInteger overhead(RemainingFraction remaining) {
    return overhead(side.plan(), remaining, List.of(), 1);
  }

  /** `above` are the conditions directly above the plan. */
  private static BigInteger overhead(
      LogicalPlan plan, RemainingFraction remaining, List<Expression> above, int times) {
    if (plan.children().isEmpty()) {
      BigInteger bytes = ReportedSize.allBytes(plan);
      double fraction = remaining == null ? 1 : remaining.of(plan, above);
      if (fraction < 1) bytes = BigInteger.valueOf((long) (fraction * bytes.doubleValue()));
      return bytes.multiply(BigInteger.valueOf(times));
    }
    List<Expression> conditions =
        plan instanceof Filter filter ? Conditions.conjuncts(filter.condition()) : List.of();
    int below = PlanSize.isShuffled(plan) ? times + 1 : times;
    return ScalaInterop.asJava(plan.children()).stream()
        .map(child -> overhead(child, remaining, conditions, below))
        .reduce(BigInteger.ZERO, BigInteger::add);
  }

  /** Return why the side probably does not have fewer keys than a scan of some bytes, or null. */
  String rejectReason(BigInteger bytes) {
    if (isIgnored || side.isHinted()) return null;
    LogicalPlan large = findLarge(side.plan(), bytes);
    return large == null
        ? null
        : PlanNames.tables(large) + " has no condition, and is not small against " + bytes
            + " bytes";
  }

  /** Return a part of a plan that may have many keys, or null. The operands of an OR, and of a
      union, are judged alone: one may have a condition, and another be small. */
  private LogicalPlan findLarge(LogicalPlan plan, BigInteger bytes) {
    return plan instanceof Union
        ? ScalaInterop.findFirst(plan.children(), child -> findLarge(child, bytes))
        : Selectivity.isSelective(plan) || isSmall(plan, bytes) ? null : plan;
  }

  /**
   * Whether a part of the side has few keys compared with a scan, though it has no condition.
   *
   * <p>Useless keys cost at most a small part of the cost of the scan, until feedback stops them.
   */
  private boolean isSmall(LogicalPlan plan, BigInteger bytes) {
    // Rows of unknown number are read once in any case.
    if (PlanSize.isUnknown(plan) && side.canBeShuffled()) return true;
    int times = isCheap() ? MIN_RATIO_IF_CHEAP : MIN_RATIO;
    BigInteger overhead = overhead(plan, null, List.of(), 1);
    return overhead.multiply(BigInteger.valueOf(times)).compareTo(bytes) <= 0;
  }

  /** Whether reading the side again is never too expensive. */
  boolean isCheap() {
    return isIgnored
        || PlanSize.bytes(side.plan()).compareTo(BigInteger.valueOf(cheapBytes)) < 0;
  }
}
