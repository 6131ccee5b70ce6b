package rewrite.jvm.predicate;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;

/** "This column has one of these values", or "is within one of these ranges", as a join says. */
public interface KeyValues {
  /** What has to be one of the values; null if there is nothing to collect. */
  Expression column();

  /** The values, none of them null; null: unavailable, or there are ranges instead. */
  List values();

  /** The ranges; null: unavailable, or there are values instead. */
  KeyRanges ranges();

  /** What the values are taken from, for people. */
  String dimension();
}
