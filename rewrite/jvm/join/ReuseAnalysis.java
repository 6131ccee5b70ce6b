package rewrite.jvm.join;

import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.PruningRegistry;
import rewrite.jvm.predicate.PlanSubqueries;
import rewrite.jvm.predicate.StaticKeys;

/**
 * Counts equal parts of a query, such as a common table expression that is used twice.
 *
 * <p>Spark computes such a part once, up to where it is shuffled. Copies with the keys of different
 * joins are no longer equal, and each is computed.
 */
final class ReuseAnalysis {
  private final PruningRegistry registry;
  private final LogicalPlan query;
  private final Map<LogicalPlan, Integer> counts = new IdentityHashMap<>();
  private List<LogicalPlan> parts;

  ReuseAnalysis(LogicalPlan query, PruningRegistry registry) {
    this.query = query;
    this.registry = registry;
  }

  /** Return how often a part is in the query, the keys of joins aside. */
  int count(LogicalPlan part) {
    return counts.computeIfAbsent(part, this::countEqual);
  }

  private int countEqual(LogicalPlan part) {
    if (parts == null) {
      parts = PlanSubqueries.nodes(removeKeys(query));
    }
    LogicalPlan bare = removeKeys(part);
    long count =
        parts.stream()
            .filter(each -> each.getClass() == bare.getClass() && each.sameResult(bare))
            .count();
    return (int) Math.max(1, count);
  }

  private LogicalPlan removeKeys(LogicalPlan plan) {
    return plan.transformDownWithSubqueries(
        ScalaInterop.transformation(
            node ->
                node instanceof Filter filter
                    ? Filters.remove(
                        filter, each -> registry.isRegistered(each) || StaticKeys.isOne(each))
                    : node));
  }
}
