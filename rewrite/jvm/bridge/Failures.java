package rewrite.jvm.bridge;

import java.io.InterruptedIOException;
import java.lang.reflect.InvocationTargetException;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedByInterruptException;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.spark.SparkThrowable;
import org.apache.spark.TaskKilledException;
import org.apache.spark.unsafe.Platform;
import rewrite.jvm.shims.Values;
import scala.util.control.NonFatal$;

/**
 * Tells what ends a query from what only costs skipping.
 *
 * <p>Every method of ours that Spark, Scala or a connector calls has all it does in a `try`, or only
 * calls what is theirs. What it throws comes here, and Spark gets its own object, as without us. An
 * error that is Spark's own comes back when Spark's own object is asked. tests/rewrite/fault_matrix.py
 * has each of these methods fail.
 */
public final class Failures {
  private static final int DEPTH = 20;
  private static final int LONGEST = 200; // characters of a message in explain

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

  /** Class and message of a failure that a query goes on after, for explain. Throws what `passOn`
      does, and in mode `strict` always. */
  public static String forgive(Throwable failure) {
    passOn(failure);
    if (isStrict()) throw new StrictModeException(bare(failure));
    return describe(failure);
  }

  /** Class and message, which may be of many lines. */
  public static String describe(Throwable failure) {
    Throwable bare = bare(failure);
    String name = bare.getClass().getSimpleName();
    if (bare.getMessage() == null) return name;
    String message = bare.getMessage().trim().split("\n", 2)[0];
    return name + ": " + message.substring(0, Math.min(LONGEST, message.length()));
  }

  private static boolean isStrict() {
    try {
      return SkippingConf.isStrict();
    } catch (RuntimeException noSession) {
      return false;
    }
  }

  /** A class or method that is not as this release knows it is no reason to fail a query, nor is a
      plan that is too deep for a walk of ours: Spark may have a way, or a thread, that it fits. */
  private static boolean isFatal(Throwable failure) {
    return !NonFatal$.MODULE$.apply(failure)
        && !(failure instanceof LinkageError)
        && !(failure instanceof StackOverflowError);
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
          || cause instanceof TaskKilledException
          || cause instanceof SparkThrowable
              && "SPARK_JOB_CANCELLED".equals(Values.condition((SparkThrowable) cause))) {
        return true;
      }
      cause = cause.getCause();
    }
    return false;
  }
}
