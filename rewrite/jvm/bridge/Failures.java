package rewrite.jvm.bridge;

import java.io.InterruptedIOException;
import java.lang.reflect.InvocationTargetException;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedByInterruptException;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.spark.SparkThrowable;
import org.apache.spark.unsafe.Platform;
import scala.util.control.NonFatal$;

/** Tells what ends a query from what only costs skipping. */
public final class Failures {
  private static final int DEPTH = 20;

  private Failures() {}

  /**
   * Throws on what the query must end with: that it was cancelled, what no code may catch, and mode
   * `strict`. Whoever catches a failure and reads all files instead calls this first.
   */
  public static void passOn(Throwable failure) {
    if (failure instanceof InterruptedException) Thread.currentThread().interrupt();
    Throwable bare = bare(failure);
    if (bare instanceof StrictModeException || isFatal(bare) || isCancelled(bare)) {
      Platform.throwException(bare); // it may be checked, and Scala's methods declare nothing
    }
  }

  /** A class or method that is not as this release knows it is no reason to fail a query. */
  private static boolean isFatal(Throwable failure) {
    return !NonFatal$.MODULE$.apply(failure) && !(failure instanceof LinkageError);
  }

  /** What failed, without what other threads and reflection wrap around it. */
  public static Throwable bare(Throwable failure) {
    Throwable bare = failure;
    while (bare.getCause() != null
        && (bare instanceof ExecutionException
            || bare instanceof CompletionException
            || bare instanceof InvocationTargetException)) {
      bare = bare.getCause();
    }
    return bare;
  }

  /** Whether somebody stopped the work, by its job, its group or tags, or by an interrupt. */
  private static boolean isCancelled(Throwable failure) {
    Throwable cause = failure;
    for (int i = 0; cause != null && i < DEPTH; i++) {
      if (cause instanceof InterruptedException
          || cause instanceof InterruptedIOException && !(cause instanceof SocketTimeoutException)
          || cause instanceof ClosedByInterruptException
          || cause instanceof CancellationException
          || cause instanceof SparkThrowable
              && "SPARK_JOB_CANCELLED".equals(((SparkThrowable) cause).getCondition())) {
        return true;
      }
      cause = cause.getCause();
    }
    return false;
  }
}
