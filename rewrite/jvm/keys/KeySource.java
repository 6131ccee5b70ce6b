package rewrite.jvm.keys;

import java.lang.ref.WeakReference;
import java.util.List;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import org.apache.spark.sql.catalyst.QueryPlanningTracker$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * The filtering side that the keys of a dynamic pruning expression come from.
 *
 * @param name the tables of the filtering side
 * @param shape what equal lookups of several queries have in common: table, column, filtering side,
 *     conditions
 * @param overhead the bytes that reading the filtering side costs, as text
 * @param copies the parts of the query for which Spark would read the pruning side only once
 * @param nonRepeatableReason what may give other rows when the side is computed again, or null
 * @param join stands for the join: all its keys are columns of the same rows
 * @param isBroadcast whether Spark is going to broadcast the side for the join
 * @param isOnlyShared whether the keys come only from a broadcast or shuffle of the query: the side must
 *     not run for them
 * @param alsoNeeded conditions of rows that a command needs although they have no partner
 * @param query the query that is planned
 */
public record KeySource(
    String name, String shape, String overhead, int copies, String nonRepeatableReason, Object join,
    boolean isBroadcast, boolean isOnlyShared, List<Expression> alsoNeeded,
    WeakReference<QueryPlanningTracker> query) {

  /** Return a source for the query that is planned now. */
  public static KeySource of(
      String name, String shape, String overhead, int copies, String nonRepeatableReason,
      Object join, boolean isBroadcast, boolean isOnlyShared, List<Expression> alsoNeeded) {
    return new KeySource(
        name, shape, overhead, copies, nonRepeatableReason, join, isBroadcast, isOnlyShared,
        alsoNeeded, new WeakReference<>(currentQuery()));
  }

  /** Return a source that is not registered, or forgotten. */
  static KeySource unknown() {
    return of("a dimension", null, "", 1, null, new Object(), false, false, List.of());
  }

  /** The source of the tuples of the same rows. */
  public KeySource ofTuples() {
    return new KeySource(
        name, shape + "\ntuples", overhead, copies, nonRepeatableReason, join, isBroadcast,
        isOnlyShared, alsoNeeded, query);
  }

  /** Whether JoinPruningRule registered it. */
  public boolean isRegistered() {
    return shape != null;
  }

  /** Return the query that is planned now; null if that is unknown. */
  static QueryPlanningTracker currentQuery() {
    return ScalaInterop.orNull(QueryPlanningTracker$.MODULE$.get());
  }
}
