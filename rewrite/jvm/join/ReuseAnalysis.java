package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.predicate.Conditions;

/**
 * Parts of a query that are alike, as of a common table that is named twice.
 *
 * <p>Spark computes such a part once, up to where it is shuffled. Copies that take the keys of
 * different joins are no longer alike, and are computed each by itself.
 */
public final class ReuseAnalysis {
  private final PruningFeedback feedback;
  private final LogicalPlan query;
  private final Map counts = new IdentityHashMap();
  private List parts;

  public ReuseAnalysis(LogicalPlan query, PruningFeedback feedback) {
    this.query = query;
    this.feedback = feedback;
  }

  /** How often a part is in the query, keys of joins aside; each of its scans wants to know. */
  public int of(LogicalPlan part) {
    Integer known = (Integer) counts.get(part);
    if (known == null) counts.put(part, known = Integer.valueOf(count(part)));
    return known.intValue();
  }

  private int count(LogicalPlan part) {
    if (parts == null) parts = ScalaInterop.asJava(bare(query).collectWithSubqueries(new All()));
    LogicalPlan bare = bare(part);
    int count = 0;
    for (int i = 0; i < parts.size(); i++) {
      LogicalPlan other = (LogicalPlan) parts.get(i);
      if (other.getClass() == bare.getClass() && other.sameResult(bare)) count++;
    }
    return Math.max(1, count);
  }

  private LogicalPlan bare(LogicalPlan plan) {
    return plan.transformDownWithSubqueries(new WithoutKeys());
  }

  private static final class All extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object plan) {
      return true;
    }

    public Object applyOrElse(Object plan, scala.Function1 otherwise) {
      return plan;
    }
  }

  /** Takes out what JoinPruningRule put in. */
  private final class WithoutKeys extends scala.runtime.AbstractPartialFunction {
    public boolean isDefinedAt(Object plan) {
      return plan instanceof Filter;
    }

    public Object applyOrElse(Object plan, scala.Function1 otherwise) {
      if (!isDefinedAt(plan)) return otherwise.apply(plan);
      Filter filter = (Filter) plan;
      List conditions = Conditions.conjuncts(filter.condition());
      List kept = new ArrayList();
      for (int i = 0; i < conditions.size(); i++) {
        if (!feedback.registry().isRegistered((Expression) conditions.get(i))) kept.add(conditions.get(i));
      }
      if (kept.size() == conditions.size()) return filter;
      return kept.isEmpty()
          ? filter.child()
          : filter.copy(Conditions.conjunction(kept), filter.child());
    }
  }
}
