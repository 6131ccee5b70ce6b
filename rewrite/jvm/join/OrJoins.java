package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import rewrite.jvm.keys.TupleRow;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.ValueTypes;

/** Finds the columns that a join compares with OR: a row of one side must equal the other side in
    one column, `ON f.a = d.a OR f.b = d.b`. */
final class OrJoins {
  private OrJoins() {}

  /** Return a candidate for each condition with OR in which each operand requires an equality. */
  static List<Candidate> of(Join join, boolean isLeft) {
    List<Candidate> out = new ArrayList<>();
    if (join.condition().isEmpty()) return out;
    AttributeSet own = (isLeft ? join.left() : join.right()).outputSet();
    LogicalPlan other = isLeft ? join.right() : join.left();
    for (Expression condition : Conditions.conjuncts(join.condition().get())) {
      if (!(condition instanceof Or)) continue;
      List<Expression> columns = new ArrayList<>();
      List<Expression> keys = new ArrayList<>();
      List<Expression> operands = Conditions.flatten(condition);
      for (Expression operand : operands) {
        add(columns, keys, operand, own, other.outputSet());
      }
      if (columns.size() < operands.size()) continue;
      FilteringSide side = new FilteringSide(other, new JoinKeys.OperandKeys(keys));
      out.add(new Candidate(TupleRow.operands(columns), side));
    }
    return out;
  }

  /** Add the two sides of the first equality that an operand requires: one is enough. */
  private static void add(
      List<Expression> columns, List<Expression> keys, Expression operand, AttributeSet own,
      AttributeSet other) {
    for (Expression condition : Conditions.conjuncts(operand)) {
      if (!(condition instanceof EqualTo equal) || !isExact(equal)) continue;
      boolean isFirst = isOf(equal.left(), own) && equal.right().references().subsetOf(other);
      boolean isLast = isOf(equal.right(), own) && equal.left().references().subsetOf(other);
      if (!isFirst && !isLast) continue;
      columns.add(isFirst ? equal.left() : equal.right());
      keys.add(isFirst ? equal.right() : equal.left());
      return;
    }
  }

  private static boolean isOf(Expression e, AttributeSet side) {
    return !e.references().isEmpty() && e.references().subsetOf(side);
  }

  /** Whether equal values are the same values, unlike collated texts. */
  private static boolean isExact(EqualTo equal) {
    return equal.deterministic() && equal.left().dataType().equals(equal.right().dataType())
        && (ValueTypes.isExact(equal.left().dataType())
            || ValueTypes.isFloating(equal.left().dataType()));
  }
}
