package rewrite.jvm.predicate;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;

/** "This column has one of these values", as the keys of a join say. */
public interface KeyValues {
  /** What has to be one of the values; null if there is nothing to collect. */
  Expression column();

  /** The values, none of them null; null: unavailable. */
  List values();

  /** What the values are taken from, for people. */
  String dimension();
}
