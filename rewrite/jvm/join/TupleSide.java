package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.KeySource;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.keys.TupleRow;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.shims.DynamicKeys;

/**
 * The side of a join by several columns, `ON f.a = d.a AND f.b = d.b`, that is read again for the
 * keys of each: it is for the tuples, too.
 *
 * <p>As with ranges the condition is `true OR dynamicpruning((a, b) IN tuples)`.
 */
final class TupleSide {
  private TupleSide() {}

  /** The filter of a scan with a condition for each dimension that it waits for several keys of. */
  static Filter added(Filter filter, PruningFeedback feedback) {
    List groups = groups(Conditions.conjuncts(filter.condition()), feedback);
    Expression condition = filter.condition();
    for (int i = 0; i < groups.size(); i++) {
      List group = (List) groups.get(i);
      ExprId first = ((DynamicPruningSubquery) group.get(0)).exprId();
      if (group.size() < 2 || feedback.rejectReason(source(first, feedback).ofTuples()) != null) continue;
      condition = new And(condition, tuples(group, feedback));
    }
    return condition == filter.condition() ? filter : filter.copy(condition, filter.child());
  }

  /** What of some conditions is of one dimension; nothing of those whose tuples are asked for. */
  private static List groups(List conditions, PruningFeedback feedback) {
    List groups = new ArrayList();
    for (int i = 0; i < conditions.size(); i++) {
      Expression condition = (Expression) conditions.get(i);
      if (!feedback.registry().isRegistered(condition)) continue;
      DynamicPruningSubquery keys = (DynamicPruningSubquery) Conditions.dynamic(condition);
      boolean isAside = Conditions.isAside(condition);
      if (isAside && !TupleRow.isRow(keys.pruningKey())) continue;
      if (keys.onlyInBroadcast() || PlanSize.isBroadcast(keys.buildQuery())) continue;
      if (isAside) return new ArrayList(); // Spark runs the rule until nothing changes
      List group = null;
      for (int j = 0; j < groups.size() && group == null; j++) {
        List some = (List) groups.get(j);
        DynamicPruningSubquery first = (DynamicPruningSubquery) some.get(0);
        boolean isOne = source(first.exprId(), feedback).join() == source(keys.exprId(), feedback).join();
        if (isOne && areAlike(first, keys)) group = some;
      }
      if (group == null) groups.add(group = new ArrayList());
      group.add(keys);
    }
    return groups;
  }

  private static KeySource source(ExprId id, PruningFeedback feedback) {
    return feedback.registry().find(id);
  }

  private static boolean areAlike(DynamicPruningSubquery one, DynamicPruningSubquery other) {
    return one.buildQuery().fastEquals(other.buildQuery())
        && one.buildKeys().equals(other.buildKeys());
  }

  private static Expression tuples(List group, PruningFeedback feedback) {
    List columns = new ArrayList();
    List keys = new ArrayList();
    for (int i = 0; i < group.size(); i++) {
      DynamicPruningSubquery one = (DynamicPruningSubquery) group.get(i);
      columns.add(one.pruningKey());
      keys.add(one.buildKeys().apply(DynamicKeys.index(one)));
    }
    DynamicPruningSubquery first = (DynamicPruningSubquery) group.get(0);
    ExprId id = feedback.registry().register(source(first.exprId(), feedback).ofTuples());
    List row = Collections.singletonList(TupleRow.row(keys));
    return new Or(
        Literal$.MODULE$.TrueLiteral(),
        DynamicKeys.of(
            TupleRow.row(columns), first.buildQuery(), ScalaInterop.asScala(row), 0, false, id));
  }
}
