package rewrite.jvm.predicate;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;

/** The condition that a column has one of some values, or is within one of some ranges. */
public interface KeyValues {
  /** Return the expression that must have one of the values; null if there are no keys. */
  Expression column();

  /** Return the expressions that OR joins; empty if the keys are of one expression. */
  default List<Expression> operands() {
    return List.of();
  }

  /** Return the values without nulls; null if they are unavailable, or there are ranges instead. */
  List<Object> values();

  /** Return the ranges; null if they are unavailable, or there are values instead. */
  KeyRanges ranges();

  /** Name the plan that provides the values; empty if they are the query's own. */
  String dimension();

  /** Keys that are available. */
  record Of(Expression column, List<Object> values, KeyRanges ranges, String dimension)
      implements KeyValues {}
}
