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
 * Decides which failures end a query, and which only cost skipping.
 *
 * <p>Every method of ours that Spark, Scala or a connector calls has its whole body in a `try`, or
 * calls nothing of ours. Its exceptions come here, and Spark gets its own object, as without us. An
 * error of Spark's own comes again from that object. tests/rewrite/fault_matrix.py makes each of
 * these methods fail.
 */
public final class Failures {
  private static final int MAX_CAUSES = 20;
  private static final int MAX_LENGTH = 200; // characters of a message in explain

  private Failures() {}

  /**
   * Throws a failure again that must end the query: cancellation, an error that no code may catch,
   * and mode `strict`. Code that catches a failure and reads all files instead calls this first.
   */
  public static void passOn(Throwable failure) {
    if (failure instanceof InterruptedException) Thread.currentThread().interrupt();
    Throwable bare = bare(failure);
    if (bare instanceof StrictModeException || isFatal(bare) || isCancelled(bare)) {
      Platform.throwException(bare); // it may be checked, and Scala's methods declare nothing
    }
  }

  /** Returns class and message of a failure that a query survives, for explain. Throws what
      `passOn` throws, and in mode `strict` always. */
  public static String forgive(Throwable failure) {
    passOn(failure);
    if (isStrict()) throw new StrictModeException(bare(failure));
    return describe(failure);
  }

  /** Returns the class and the first line of the message. */
  public static String describe(Throwable failure) {
    Throwable bare = bare(failure);
    String name = bare.getClass().getSimpleName();
    if (bare.getMessage() == null) return name;
    String message = bare.getMessage().trim().split("\n", 2)[0];
    return name + ": " + message.substring(0, Math.min(MAX_LENGTH, message.length()));
  }

  private static boolean isStrict() {
    try {
      return SkippingConf.isStrict();
    } catch (RuntimeException noSession) {
      return false;
    }
  }

  /** Whether no code may catch a failure. A class or method of another release does not end a
      query, nor does a plan that is too deep for our recursion: Spark may have a larger stack. */
  private static boolean isFatal(Throwable failure) {
    return !NonFatal$.MODULE$.apply(failure)
        && !(failure instanceof LinkageError)
        && !(failure instanceof StackOverflowError);
  }

  /** Returns the failure, without the exceptions that threads and reflection wrap around it. */
  private static Throwable bare(Throwable failure) {
    Throwable bare = failure;
    while (bare.getCause() != null
        && (bare instanceof ExecutionException
            || bare instanceof CompletionException
            || bare instanceof InvocationTargetException)) {
      bare = bare.getCause();
    }
    return bare;
  }

  /** Whether the work was stopped, by its job, its group or tags, or by an interrupt. */
  private static boolean isCancelled(Throwable failure) {
    Throwable cause = failure;
    for (int i = 0; cause != null && i < MAX_CAUSES; i++) {
      if (cause instanceof InterruptedException
          || cause instanceof InterruptedIOException && !(cause instanceof SocketTimeoutException)
          || cause instanceof ClosedByInterruptException
          || cause instanceof CancellationException
          || cause instanceof TaskKilledException
          || cause instanceof SparkThrowable error
              && "SPARK_JOB_CANCELLED".equals(Values.condition(error))) {
        return true;
      }
      cause = cause.getCause();
    }
    return false;
  }
}
