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
 * <p>While they are few they are asked as such, beside the keys of each column.
 */
public final class TupleKeys {
  private static final int MOST = 50;

  private TupleKeys() {}

  /** One condition for each dimension that several of the key sets are of, where the tuples fit
      into so many bytes. */
  public static List conditions(List sets, long maxBytes) {
    List out = new ArrayList();
    Set done = new HashSet();
    for (int i = 0; i < sets.size(); i++) {
      List group = new ArrayList();
      for (int j = i; j < sets.size(); j++) {
        JoinKeySet set = (JoinKeySet) sets.get(j);
        if (set.values() == null || set.broadcast() == null || done.contains(set)) continue;
        if (group.isEmpty() || ((JoinKeySet) group.get(0)).broadcast().isOf(set.broadcast())) {
          group.add(set);
          done.add(set);
        }
      }
      Expression condition = group.size() > 1 ? condition(group, maxBytes) : null;
      if (condition != null) out.add(condition);
    }
    return out;
  }

  private static Expression condition(List group, long maxBytes) {
    BroadcastKeys keys = ((JoinKeySet) group.get(0)).broadcast();
    List indices = new ArrayList();
    for (int i = 0; i < group.size(); i++) {
      indices.add(Integer.valueOf(((JoinKeySet) group.get(i)).broadcast().index()));
    }
    Collection rows = keys.rows(indices, MOST, maxBytes);
    if (rows == null) return null;
    Expression any = null;
    for (Iterator each = rows.iterator(); each.hasNext(); ) {
      InternalRow row = (InternalRow) each.next();
      if (row.anyNull()) continue; // a null matches nothing
      List equals = new ArrayList();
      for (int i = 0; i < group.size(); i++) {
        Expression column = ((JoinKeySet) group.get(i)).expression().child();
        Object value = row.get(i, column.dataType());
        equals.add(new EqualTo(column, new Literal(value, column.dataType())));
      }
      Expression all = Conditions.conjunction(equals);
      any = any == null ? all : new Or(any, all);
    }
    return any;
  }
}
