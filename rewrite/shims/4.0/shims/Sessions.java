package rewrite.jvm.shims;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.catalyst.plans.logical.EmptyRelation;
import scala.Function0;
import scala.collection.immutable.List;

/**
 * Sessions, their jobs and caches.
 *
 * <p>Since 4.0 they are `classic` next to those of Connect, and tag their jobs; a cache knows its
 * logical plan; an empty plan of adaptive execution is an EmptyRelation, not a LocalRelation.
 */
public final class Sessions {
  private Sessions() {}

  /** The tags of all jobs that a thread of a session starts. */
  public static List<String> tags(SparkSession session) {
    return own(session).managedJobTags().get().values().toList().$colon$colon(own(session).sessionJobTag());
  }

  /** Runs work in another thread, with the local properties of this one. */
  public static <T> Future<T> submit(
      SparkSession session, ExecutorService threads, Function0<T> work) {
    return SQLExecution$.MODULE$.withThreadLocalCaptured(own(session), threads, work);
  }

  /** The plan whose rows a cache has; null if it is not known. */
  public static LogicalPlan cachedPlan(InMemoryRelation cache) {
    return cache.cacheBuilder().logicalPlan();
  }

  /** Whether adaptive execution has found a leaf to be empty. */
  public static boolean isEmpty(LogicalPlan leaf) {
    return leaf instanceof EmptyRelation;
  }

  private static org.apache.spark.sql.classic.SparkSession own(SparkSession session) {
    return (org.apache.spark.sql.classic.SparkSession) session;
  }
}
