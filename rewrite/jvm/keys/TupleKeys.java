package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import rewrite.jvm.predicate.Composites;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.PredicateEncoder;
import rewrite.jvm.predicate.Tuples;

/**
 * Joins by several columns: their keys are tuples, and (1, 2), (3, 4) are not (1, 4).
 *
 * <p>While they are few, or the index has a composite for them, they are asked as such, beside the
 * keys of each column. They are taken from the broadcast that those are of; where a dimension is
 * read again, it is for the tuples, too.
 */
public final class TupleKeys {
  private TupleKeys() {}

  /** One condition for each dimension that several of the key sets are of, where the tuples are
      few, and fit into so many bytes. */
  public static List conditions(List sets, long maxBytes) {
    List out = new ArrayList();
    List all = of(sets, null, maxBytes);
    for (int i = 0; i < all.size(); i++) {
      Expression condition = condition((Tuples) all.get(i));
      if (condition != null) out.add(condition); // else the keys of each column are none
    }
    return out;
  }

  /** The tuples that composites can be asked for: however many, if they fit. */
  public static List of(List sets, Composites composites, long maxBytes) {
    List out = new ArrayList();
    Set done = new HashSet();
    for (int i = 0; i < sets.size(); i++) {
      JoinKeySet first = (JoinKeySet) sets.get(i);
      if (first.tuples() != null) {
        List columns = TupleRow.columns(first.expression().child());
        if (first.tuples().size() <= most(columns, composites)) {
          out.add(new Tuples(columns, first.tuples(), first.dimension()));
        }
        continue;
      }
      List group = new ArrayList();
      List columns = new ArrayList();
      for (int j = i; j < sets.size(); j++) {
        JoinKeySet set = (JoinKeySet) sets.get(j);
        if (set.values() == null || set.broadcast() == null || done.contains(set)) continue;
        if (group.isEmpty() || set.isOfOneJoin((JoinKeySet) group.get(0))) {
          group.add(set);
          columns.add(set.expression().child());
          done.add(set);
        }
      }
      int most = group.size() > 1 ? most(columns, composites) : 0;
      Collection rows = most > 0 ? rows(group, most, maxBytes) : null;
      if (rows != null) out.add(new Tuples(columns, rows, first(group).dimension()));
    }
    return out;
  }

  /** How many tuples of some columns are asked for: few, or those of composites. */
  private static int most(List columns, Composites composites) {
    if (composites == null) return PredicateEncoder.FEW_TUPLES;
    return composites.areAskedBy(columns) ? Integer.MAX_VALUE : 0;
  }

  private static JoinKeySet first(List group) {
    return (JoinKeySet) group.get(0);
  }

  /** The tuples that some sets of one broadcast are of; null where they are many. */
  private static Collection rows(List group, int most, long maxBytes) {
    BroadcastKeys keys = first(group).broadcast();
    List indices = new ArrayList();
    for (int i = 0; i < group.size(); i++) {
      indices.add(Integer.valueOf(((JoinKeySet) group.get(i)).broadcast().index()));
    }
    return keys.rows(indices, most, maxBytes);
  }

  private static Expression condition(Tuples tuples) {
    Expression any = null;
    for (int i = 0; i < tuples.rows().size(); i++) {
      InternalRow row = tuples.rows().get(i);
      List equals = new ArrayList();
      for (int j = 0; j < tuples.columns().size(); j++) {
        Expression column = tuples.columns().get(j);
        Object value = row.get(j, column.dataType());
        equals.add(new EqualTo(column, new Literal(value, column.dataType())));
      }
      Expression all = Conditions.conjunction(equals);
      any = any == null ? all : new Or(any, all);
    }
    return any;
  }
}
