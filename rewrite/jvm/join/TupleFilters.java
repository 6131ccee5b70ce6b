package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.KeySource;
import rewrite.jvm.keys.PruningRegistry;
import rewrite.jvm.keys.TupleRow;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.shims.DynamicKeys;

/**
 * Adds filters for tuples, of a join by several columns: `ON f.a = d.a AND f.b = d.b`. A filtering
 * side that is read again for the keys of each column is also read for the tuples.
 *
 * <p>As with ranges the condition is `true OR dynamicpruning((a, b) IN tuples)`.
 */
final class TupleFilters {
  private TupleFilters() {}

  /** Return the filter of a scan with a condition for each filtering side that it waits for several
      keys of. */
  static Filter add(Filter filter, PruningContext context) {
    Expression condition = filter.condition();
    for (List<DynamicPruningSubquery> group : groups(filter, context.registry())) {
      KeySource source = context.registry().find(group.get(0).exprId()).ofTuples();
      if (group.size() < 2 || context.feedback().rejectReason(source) != null) continue;
      condition = new And(condition, createFilter(group, source, context.registry()));
    }
    return condition == filter.condition() ? filter : filter.copy(condition, filter.child());
  }

  /** Return the keys of a filter in a list for each filtering side; nothing if the filter has
      conditions for tuples. */
  private static List<List<DynamicPruningSubquery>> groups(
      Filter filter, PruningRegistry registry) {
    List<List<DynamicPruningSubquery>> groups = new ArrayList<>();
    for (Expression condition : Conditions.conjuncts(filter.condition())) {
      if (!registry.isRegistered(condition)) continue;
      if (!(Conditions.dynamic(condition) instanceof DynamicPruningSubquery keys)) continue;
      boolean isAside = Conditions.isAside(condition);
      if (isAside && !TupleRow.isRow(keys.pruningKey())) continue;
      // The tuples of a broadcast come from it: see TupleKeys.
      if (keys.onlyInBroadcast() || registry.find(keys.exprId()).isBroadcast()) continue;
      if (isAside) return List.of(); // Spark repeats the rule until nothing changes
      List<DynamicPruningSubquery> group =
          groups.stream()
              .filter(each -> areOfSameSide(each.get(0), keys, registry))
              .findFirst()
              .orElse(null);
      if (group == null) groups.add(group = new ArrayList<>());
      group.add(keys);
    }
    return groups;
  }

  private static boolean areOfSameSide(
      DynamicPruningSubquery one, DynamicPruningSubquery other, PruningRegistry registry) {
    return registry.find(one.exprId()).join() == registry.find(other.exprId()).join()
        && one.buildQuery().fastEquals(other.buildQuery())
        && one.buildKeys().equals(other.buildKeys());
  }

  private static Expression createFilter(
      List<DynamicPruningSubquery> group, KeySource source, PruningRegistry registry) {
    List<Expression> columns = group.stream().map(DynamicPruningSubquery::pruningKey).toList();
    List<Expression> keys =
        group.stream().map(each -> each.buildKeys().apply(DynamicKeys.index(each))).toList();
    return Conditions.setAside(
        DynamicKeys.of(
            TupleRow.row(columns), group.get(0).buildQuery(),
            ScalaInterop.asScala(List.of(TupleRow.row(keys))), 0, false,
            registry.register(source)));
  }
}
