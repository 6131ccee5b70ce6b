package rewrite.jvm.parser;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BiFunction;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.unsafe.Platform;

/**
 * Python's half of the statements.
 *
 * <p>Py4J keeps a connection, and a thread at both ends, for every thread that ever called, and the
 * servers for Connect and JDBC make a thread a query. So threads that Python did not send have
 * others call, which live as long as this JVM. Statements beyond their number wait; those that are
 * only parsed do not wait for those that run.
 */
public final class StatementCallback {
  private static final int AT_ONCE = 32;
  private static final Semaphore PARSING = new Semaphore(AT_ONCE, true);
  private static final Semaphore RUNNING = new Semaphore(AT_ONCE, true);
  private static final ExecutorService THREADS =
      new ThreadPoolExecutor(
          0, Integer.MAX_VALUE, Long.MAX_VALUE, TimeUnit.NANOSECONDS, new SynchronousQueue(),
          new Callers());

  private static final long PAUSE = 100; // milliseconds
  private static final int PAUSES = 10;

  private final BiFunction python;
  private final String secret;

  /** `python` parses (text, null) and runs (text, StatementCall), for those who know the `secret`.
      */
  public StatementCallback(BiFunction python, String secret) {
    this.python = python;
    this.secret = secret;
  }

  /** What parsing a text gives, without a session, or running it in one. */
  Object call(String text, SparkSession session) {
    StatementCall call = new StatementCall(python, secret + text, session);
    if (hasConnection()) return call.result(call.apply());
    Semaphore places = session == null ? PARSING : RUNNING;
    try {
      places.acquire();
    } catch (InterruptedException cancelled) {
      Platform.throwException(cancelled);
    }
    Waiting waiting = new Waiting(call, places);
    try {
      // Jobs of the statement are of the query: they are cancelled with it, and shown with it.
      waiting.answer = session == null
          ? THREADS.submit(call)
          : SQLExecution$.MODULE$.withThreadLocalCaptured(
              (org.apache.spark.sql.classic.SparkSession) session, THREADS, call);
    } finally {
      if (waiting.answer == null) places.release();
    }
    return call.result(waiting.outcome());
  }

  /** Whether the thread is one of these, or one that Python sent and waits for. */
  private static boolean hasConnection() {
    if (Thread.currentThread() instanceof CallerThread) return true;
    StackTraceElement[] stack = Thread.currentThread().getStackTrace();
    return stack.length > 1
        && stack[stack.length - 2].getClassName().equals("py4j.ClientServerConnection");
  }

  /** Waits for a statement, and gives its place back when it is over. */
  private static final class Waiting implements Runnable {
    private final StatementCall call;
    private final Semaphore places;
    private Future answer;

    Waiting(StatementCall call, Semaphore places) {
      this.call = call;
      this.places = places;
    }

    /** Until it is over. Who cancels a query interrupts its thread, and no other: then the jobs of
        the statement are cancelled, and it ends with them. What goes on for a second, such as a
        store that does not answer, the query leaves. */
    Object outcome() {
      int pauses = -1; // as long as nobody has cancelled it
      boolean isLeft = false;
      try {
        while (true) {
          try {
            if (pauses < 0) return answer.get();
            call.cancel();
            return answer.get(PAUSE, TimeUnit.MILLISECONDS);
          } catch (InterruptedException cancelled) {
            pauses = Math.max(pauses, 0);
          } catch (TimeoutException goesOn) {
            if (++pauses < PAUSES) continue;
            THREADS.execute(this);
            isLeft = true;
            Platform.throwException(new InterruptedException("the statement was cancelled"));
          } catch (ExecutionException failure) {
            Platform.throwException(failure.getCause());
          }
        }
      } finally {
        if (!isLeft) places.release();
        if (pauses >= 0) Thread.currentThread().interrupt();
      }
    }

    /** Waits for what was left, which is to start no job any more. */
    public void run() {
      try {
        while (!answer.isDone()) {
          call.cancel();
          Thread.sleep(PAUSE);
        }
      } catch (Exception ended) {
        // Spark has stopped.
      } finally {
        places.release();
      }
    }
  }

  private static final class Callers implements ThreadFactory {
    public Thread newThread(Runnable work) {
      return new CallerThread(work);
    }
  }
}
