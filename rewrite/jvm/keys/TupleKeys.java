package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import rewrite.jvm.predicate.Composites;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.PredicateEncoder;
import rewrite.jvm.predicate.Tuples;

/**
 * The keys of joins by several columns: they are tuples, and (1, 2), (3, 4) are not (1, 4).
 *
 * <p>Few tuples, or those that a multi-column index covers, are looked up together with the keys of
 * each column. They come from the broadcast that has the keys of each column. A filtering side that
 * is read again is also read for the tuples.
 */
public final class TupleKeys {
  private TupleKeys() {}

  /** Return a condition for each filtering side that several key sets come from, if the tuples are
      few, and fit into `maxBytes`. */
  public static List<Expression> conditions(List<JoinKeySet> sets, long maxBytes) {
    // Without tuples the keys of each column are empty, too.
    return of(sets, null, maxBytes).stream()
        .map(TupleKeys::condition)
        .filter(Objects::nonNull)
        .toList();
  }

  /** Return the tuples that multi-column indexes cover, however many, if they fit. */
  public static List<Tuples> of(List<JoinKeySet> sets, Composites composites, long maxBytes) {
    List<Tuples> out = new ArrayList<>();
    Set<JoinKeySet> done = new HashSet<>();
    for (JoinKeySet first : sets) {
      Collection<InternalRow> tuples = first.tuples();
      if (tuples != null) {
        List<Expression> columns = TupleRow.columns(first.expression().child());
        if (tuples.size() <= maxTuples(columns, composites)) {
          out.add(Tuples.ofKeys(columns, tuples, first.dimension()));
        }
        continue;
      }
      if (!hasColumn(first) || done.contains(first)) continue;
      List<JoinKeySet> group =
          sets.subList(sets.indexOf(first), sets.size()).stream()
              .filter(set -> hasColumn(set) && !done.contains(set))
              .filter(set -> set == first || set.isOfSameJoin(first))
              .toList();
      done.addAll(group);
      List<Expression> columns = group.stream().map(set -> set.expression().child()).toList();
      int maxTuples = group.size() > 1 ? maxTuples(columns, composites) : 0;
      Collection<InternalRow> rows = maxTuples > 0 ? rows(group, maxTuples, maxBytes) : null;
      if (rows != null) out.add(Tuples.ofKeys(columns, rows, first.dimension()));
    }
    return out;
  }

  /** Whether keys are a column of a broadcast. */
  private static boolean hasColumn(JoinKeySet set) {
    return set.values() != null && set.broadcast() != null;
  }

  /** Return how many tuples of some columns are looked up. */
  private static int maxTuples(List<Expression> columns, Composites composites) {
    if (composites == null) return PredicateEncoder.FEW_TUPLES;
    return composites.applyTo(columns) ? Integer.MAX_VALUE : 0;
  }

  /** Return the tuples of the sets of one broadcast; null if they are many. */
  private static Collection<InternalRow> rows(
      List<JoinKeySet> group, int maxTuples, long maxBytes) {
    List<Integer> indices = group.stream().map(set -> set.broadcast().index()).toList();
    return group.get(0).broadcast().rows(indices, maxTuples, maxBytes);
  }

  private static Expression condition(Tuples tuples) {
    List<Expression> operands = new ArrayList<>();
    for (InternalRow row : tuples.rows()) {
      List<Expression> equalities = new ArrayList<>();
      for (Expression column : tuples.columns()) {
        Object value = row.get(equalities.size(), column.dataType());
        equalities.add(new EqualTo(column, new Literal(value, column.dataType())));
      }
      operands.add(Conditions.conjunction(equalities));
    }
    return Conditions.disjunction(operands);
  }
}
