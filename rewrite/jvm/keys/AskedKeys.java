package rewrite.jvm.keys;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.predicate.KeyValues;

/** The keys of a join as it compares them with an expression: not mapped back to its column. */
final class AskedKeys implements KeyValues {
  private final Expression expression;
  private final List values;
  private final KeyRanges ranges;
  private final String dimension;

  AskedKeys(Expression expression, List values, KeyRanges ranges, String dimension) {
    this.expression = expression;
    this.values = values;
    this.ranges = ranges;
    this.dimension = dimension;
  }

  public Expression column() {
    return expression;
  }

  public List values() {
    return values;
  }

  public KeyRanges ranges() {
    return ranges;
  }

  public String dimension() {
    return dimension;
  }
}
