package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import rewrite.jvm.predicate.Conditions;

/**
 * Joins by several columns: their keys are tuples, and (1, 2), (3, 4) are not (1, 4).
 *
 * <p>While they are few they are asked as such, beside the keys of each column. They are taken from
 * the broadcast that those are of; where a dimension is read again, it is for the tuples, too.
 */
public final class TupleKeys {
  private TupleKeys() {}

  /** One condition for each dimension that several of the key sets are of, where the tuples fit
      into so many bytes. */
  public static List conditions(List sets, long maxBytes) {
    List out = new ArrayList();
    Set done = new HashSet();
    for (int i = 0; i < sets.size(); i++) {
      JoinKeySet first = (JoinKeySet) sets.get(i);
      if (first.tuples() != null) {
        add(out, TupleRow.columns(first.expression().child()), first.tuples());
        continue;
      }
      List group = new ArrayList();
      for (int j = i; j < sets.size(); j++) {
        JoinKeySet set = (JoinKeySet) sets.get(j);
        if (set.values() == null || set.broadcast() == null || done.contains(set)) continue;
        if (group.isEmpty() || set.isOfOneJoin((JoinKeySet) group.get(0))) {
          group.add(set);
          done.add(set);
        }
      }
      Collection rows = group.size() > 1 ? rows(group, maxBytes) : null;
      if (rows == null) continue;
      List columns = new ArrayList();
      for (int j = 0; j < group.size(); j++) {
        columns.add(((JoinKeySet) group.get(j)).expression().child());
      }
      add(out, columns, rows);
    }
    return out;
  }

  /** The tuples that some sets of one broadcast are of; null where they are many. */
  private static Collection rows(List group, long maxBytes) {
    BroadcastKeys keys = ((JoinKeySet) group.get(0)).broadcast();
    List indices = new ArrayList();
    for (int i = 0; i < group.size(); i++) {
      indices.add(Integer.valueOf(((JoinKeySet) group.get(i)).broadcast().index()));
    }
    return keys.rows(indices, TupleRow.MOST, maxBytes);
  }

  private static void add(List conditions, List columns, Collection rows) {
    Expression any = null;
    for (Iterator each = rows.iterator(); each.hasNext(); ) {
      InternalRow row = (InternalRow) each.next();
      if (row == null || row.anyNull()) continue; // a null matches nothing
      List equals = new ArrayList();
      for (int i = 0; i < columns.size(); i++) {
        Expression column = (Expression) columns.get(i);
        Object value = row.get(i, column.dataType());
        equals.add(new EqualTo(column, new Literal(value, column.dataType())));
      }
      Expression all = Conditions.conjunction(equals);
      any = any == null ? all : new Or(any, all);
    }
    if (any != null) conditions.add(any); // else the keys of each column are none
  }
}
