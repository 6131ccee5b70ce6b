package rewrite.jvm.keys;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.predicate.KeyValues;

/**
 * The keys of one column in the forms that an index may have.
 *
 * @param original the keys of the expression that the join compares; null if that is the column
 * @param ofColumn the keys of the column in it
 */
public record KeyForms(KeyValues original, KeyValues ofColumn) {
  /** Return the forms of keys that an expression is compared with, nulls aside. */
  public static KeyForms of(Expression compared, List<Object> values, String dimension) {
    KeyValues given = new KeyValues.Of(compared, values, null, dimension);
    Inversion inversion = Inversion.of(compared);
    if (inversion == null) return new KeyForms(null, given);
    KeyRanges ranges = inversion.givesRanges() ? inversion.ranges(values) : null;
    List<Object> inverted = ranges == null ? inversion.values(values) : null;
    return new KeyForms(
        given, new KeyValues.Of(inversion.column(), inverted, ranges, dimension));
  }
}
