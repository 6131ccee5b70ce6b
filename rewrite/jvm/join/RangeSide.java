package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.KnownNullable;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.predicate.KeyRanges;

/**
 * The side of a join that says within which ranges a column of the other one has to be:
 * `ON f.ts BETWEEN d.first AND d.last`.
 *
 * <p>Its keys are pairs, and the condition of a scan is `true OR dynamicpruning((c, c) IN pairs)`:
 * whoever evaluates it as it stands drops no row.
 */
final class RangeSide extends BuildSide {
  private final Expression column;
  private final Expression from;
  private final Expression to;

  /** `from` and `to` are expressions of the plan's columns; one may be null. */
  private RangeSide(LogicalPlan plan, Expression column, Expression from, Expression to) {
    super(plan, Collections.singletonList(pair(from, to)), 0, false);
    this.column = column;
    this.from = from;
    this.to = to;
  }

  /** Those of a join's condition that restrict columns of one side, one for each column. */
  static List of(Join join, boolean left) {
    List out = new ArrayList();
    if (join.condition().isEmpty()) return out;
    AttributeSet own = (left ? join.left() : join.right()).outputSet();
    LogicalPlan other = left ? join.right() : join.left();
    List conditions = Conditions.conjuncts(join.condition().get());
    for (int i = 0; i < conditions.size(); i++) {
      Expression condition = (Expression) conditions.get(i);
      boolean less = condition instanceof LessThan || condition instanceof LessThanOrEqual;
      boolean greater = condition instanceof GreaterThan || condition instanceof GreaterThanOrEqual;
      if (!less && !greater) continue;
      Expression column = condition.children().apply(0);
      Expression end = condition.children().apply(1);
      boolean mirrored = end.references().subsetOf(own);
      if (mirrored) {
        end = column;
        column = condition.children().apply(1);
      }
      boolean isOne = column.references().size() == 1 && column.references().subsetOf(own);
      boolean isEnd =
          end.deterministic() && !end.references().isEmpty()
              && end.references().subsetOf(other.outputSet());
      if (isOne && isEnd) add(out, other, column, end, less == mirrored);
    }
    return out;
  }

  private static void add(
      List sides, LogicalPlan plan, Expression column, Expression end, boolean isFrom) {
    for (int i = 0; i < sides.size(); i++) {
      RangeSide there = (RangeSide) sides.get(i);
      if (!there.column.semanticEquals(column)) continue;
      if ((isFrom ? there.from : there.to) == null) {
        Expression from = isFrom ? end : there.from;
        sides.set(i, new RangeSide(plan, column, from, isFrom ? there.to : end));
      }
      return; // further conditions leave fewer rows
    }
    sides.add(new RangeSide(plan, column, isFrom ? end : null, isFrom ? null : end));
  }

  /** A row of a range. Both sides of a comparison have to be of one type, nulls included. */
  private static Expression pair(Expression from, Expression to) {
    List fields = new ArrayList();
    if (from != null) {
      fields.add(Literal$.MODULE$.apply(KeyRanges.FROM));
      fields.add(new KnownNullable(from));
    }
    if (to != null) {
      fields.add(Literal$.MODULE$.apply(KeyRanges.TO));
      fields.add(new KnownNullable(to));
    }
    return new CreateNamedStruct(ScalaInterop.asScala(fields));
  }

  /** What has to be within one of the ranges. */
  Expression column() {
    return column;
  }

  boolean isComparable(Expression column) {
    Inversion cast = Inversion.of(column);
    boolean hasRanges = cast == null || cast.givesRanges();
    return hasRanges && (from == null ? to : from).dataType().equals(column.dataType());
  }

  /** Broadcasts of such joins are not sorted by keys. */
  public boolean isBroadcast() {
    return false;
  }

  Expression on(Expression column, ExprId id, boolean onlyInBroadcast) {
    return new Or(
        Literal$.MODULE$.TrueLiteral(), super.on(column, id, onlyInBroadcast));
  }

  Expression asked(Expression column) {
    return pair(from == null ? null : column, to == null ? null : column);
  }

  BuildSide part(LogicalPlan least) {
    return new RangeSide(least, column, from, to);
  }
}
