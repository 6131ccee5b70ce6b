package rewrite.jvm.keys;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.predicate.KeyValues;

/** The keys of a join as it compares them with an expression, not mapped to the column in it. */
record RawKeys(Expression column, List<Object> values, KeyRanges ranges, String dimension)
    implements KeyValues {}
