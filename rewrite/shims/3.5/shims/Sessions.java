package rewrite.jvm.shims;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.analysis.UnresolvedRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function0;
import scala.collection.immutable.List$;
import scala.collection.immutable.List;
import scala.runtime.AbstractFunction0;

/**
 * Sessions, their jobs and caches.
 *
 * <p>Until 3.5 they tag no jobs, and a cache knows its physical plan only; see 4.0.
 */
public final class Sessions {
  private Sessions() {}

  /** The tags of all jobs that a thread of a session starts. */
  public static List<String> tags(SparkSession session) {
    return List$.MODULE$.empty();
  }

  /** Runs work in another thread, with the local properties of this one. */
  public static <T> Future<T> submit(
      SparkSession session, ExecutorService threads, Function0<T> work) {
    return SQLExecution$.MODULE$.withThreadLocalCaptured(session, threads, work);
  }

  /** The plan whose rows a cache has; one that nothing is known of if Spark has not kept it. */
  public static LogicalPlan cachedPlan(InMemoryRelation cache) {
    return cache.cacheBuilder().cachedPlan().logicalLink().getOrElse(new Unknown());
  }

  /** Whether adaptive execution has found a leaf to be empty. */
  public static boolean isEmpty(LogicalPlan leaf) {
    return false;
  }

  private static final class Unknown extends AbstractFunction0<LogicalPlan> {
    public LogicalPlan apply() {
      return new UnresolvedRelation(
          List$.MODULE$.<String>empty().$colon$colon("a cache"), CaseInsensitiveStringMap.empty(),
          false);
    }
  }
}
