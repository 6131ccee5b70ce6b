package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.List;
import java.util.ListIterator;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import rewrite.jvm.join.JoinKeys.RangeKeys;
import rewrite.jvm.predicate.Conditions;

/** Finds the columns of one side of a join that must be within ranges of the other side:
    `ON f.ts BETWEEN d.first AND d.last`. */
final class RangeJoins {
  private RangeJoins() {}

  /** Return the columns of one side with their ranges, one for each column. */
  static List<Candidate> of(Join join, boolean isLeft) {
    List<Candidate> out = new ArrayList<>();
    if (join.condition().isEmpty()) return out;
    AttributeSet own = (isLeft ? join.left() : join.right()).outputSet();
    LogicalPlan other = isLeft ? join.right() : join.left();
    for (Expression condition : Conditions.conjuncts(join.condition().get())) {
      boolean less = condition instanceof LessThan || condition instanceof LessThanOrEqual;
      boolean greater = condition instanceof GreaterThan || condition instanceof GreaterThanOrEqual;
      if (!less && !greater) continue;
      Expression first = condition.children().head();
      Expression last = condition.children().last();
      boolean isMirrored = last.references().subsetOf(own);
      Expression column = isMirrored ? last : first;
      Expression end = isMirrored ? first : last;
      boolean isColumn = column.references().size() == 1 && column.references().subsetOf(own);
      boolean isEnd =
          end.deterministic() && !end.references().isEmpty()
              && end.references().subsetOf(other.outputSet());
      if (isColumn && isEnd) add(out, other, column, end, less == isMirrored);
    }
    return out;
  }

  /** Further conditions on an end that is there leave fewer rows. */
  private static void add(
      List<Candidate> candidates, LogicalPlan plan, Expression column, Expression end,
      boolean isFrom) {
    for (ListIterator<Candidate> each = candidates.listIterator(); each.hasNext(); ) {
      Candidate candidate = each.next();
      if (!candidate.pruningKey().semanticEquals(column)) continue;
      if (!(candidate.side().keys() instanceof RangeKeys keys)) continue;
      if (isFrom && keys.from() == null) each.set(candidate(plan, column, end, keys.to()));
      if (!isFrom && keys.to() == null) each.set(candidate(plan, column, keys.from(), end));
      return;
    }
    candidates.add(candidate(plan, column, isFrom ? end : null, isFrom ? null : end));
  }

  private static Candidate candidate(
      LogicalPlan plan, Expression column, Expression from, Expression to) {
    return new Candidate(column, new FilteringSide(plan, new RangeKeys(from, to)));
  }
}
