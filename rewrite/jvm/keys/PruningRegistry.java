package rewrite.jvm.keys;

import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import rewrite.jvm.bridge.RecentMap;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.UnmatchedClauses;

/**
 * The sources of the dynamic pruning expressions that JoinPruningRule put into plans.
 *
 * <p>Spark keeps the id of such an expression when it plans it, except for a side that is read again
 * without adaptive execution before 4.1. Tags would be lost where Spark copies expressions.
 */
public final class PruningRegistry {
  private static final int CAPACITY = 10_000;

  private final Map<ExprId, KeySource> sources = new RecentMap<>(CAPACITY);
  /** Sources with conditions, which may be large. */
  private final Map<ExprId, KeySource> largeSources = new RecentMap<>(100);
  /** Those of the command that was planned last: Spark runs it in the thread that plans it. */
  private final ThreadLocal<UnmatchedClauses> clauses = new ThreadLocal<>();

  /** Register a source, and return the id for its expression. */
  public synchronized ExprId register(KeySource source) {
    ExprId id = NamedExpression$.MODULE$.newExprId();
    (source.alsoNeeded().isEmpty() ? sources : largeSources).put(id, source);
    return id;
  }

  /** Return the source of an expression, which may not be registered. */
  public synchronized KeySource find(ExprId id) {
    KeySource source = sources.getOrDefault(id, largeSources.get(id));
    return source != null ? source : KeySource.unknown();
  }

  /** Register the clauses of the command that is about to run in this thread; null: none. */
  public void register(UnmatchedClauses found) {
    clauses.set(found);
  }

  /** Return the clauses of the MERGE in this thread if a scan reads its table; else null. */
  public UnmatchedClauses findClauses(LogicalPlan scan) {
    UnmatchedClauses found = clauses.get();
    return found != null && !scan.output().isEmpty()
            && found.has(scan.output().head().exprId())
        ? found
        : null;
  }

  /** Whether a condition of a logical plan is a registered dynamic pruning expression. */
  public boolean isRegistered(Expression condition) {
    return Conditions.dynamic(condition) instanceof DynamicPruningSubquery filter
        && find(filter.exprId()).isRegistered();
  }
}
