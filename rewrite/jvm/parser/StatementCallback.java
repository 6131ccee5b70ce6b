package rewrite.jvm.parser;

import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BiFunction;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.unsafe.Platform;
import rewrite.jvm.shims.Sessions;

/**
 * Calls Python for statements.
 *
 * <p>Py4J keeps a connection, and a thread at both ends, for every thread that ever called, and the
 * servers for Connect and JDBC make a thread for each query. So a thread that Python did not start
 * passes its statement to one of the threads here, which live as long as this JVM. If all are busy,
 * it waits: see `Permit`.
 */
public final class StatementCallback {
  private static final ExecutorService THREADS =
      new ThreadPoolExecutor(
          0, Integer.MAX_VALUE, Long.MAX_VALUE, TimeUnit.NANOSECONDS, new SynchronousQueue<>(),
          CallerThread::new);

  private static final long PAUSE = 100; // milliseconds
  private static final int PAUSES = 10;

  private volatile BiFunction<String, StatementCall, String> python;
  private String secret;

  /** Sets the function that parses (text, null) and runs (text, StatementCall). It accepts a text
      only after the `secret`. */
  public void connect(BiFunction<String, StatementCall, String> python, String secret) {
    this.secret = secret;
    this.python = python; // last: it is volatile
  }

  /** Returns the schema of a statement, or its error, as JSON; null if the text is not ours. */
  String parse(String text) {
    return run(text, null).json();
  }

  /** Runs a statement; only parses it if the session is null. */
  StatementCall run(String text, SparkSession session) {
    if (python == null) throw new IllegalStateException("rewrite.enable was not called");
    StatementCall call = new StatementCall(python, secret + text, session);
    if (hasConnection()) return call.call();
    Permit permit = Permit.acquire(session);
    Future<StatementCall> result = null;
    try {
      // The jobs of the statement belong to the query: Spark cancels and shows them with it.
      result = session == null
          ? THREADS.submit(call)
          : Sessions.submit(session, THREADS, call::call);
    } finally {
      if (result == null) permit.release();
    }
    return await(call, result, permit);
  }

  /** Whether the thread is one of ours, or one that Python started and waits for. */
  private static boolean hasConnection() {
    if (Thread.currentThread() instanceof CallerThread) return true;
    StackTraceElement[] stack = Thread.currentThread().getStackTrace();
    return stack.length > 1
        && stack[stack.length - 2].getClassName().equals("py4j.ClientServerConnection");
  }

  /** Waits for a statement. Cancelling a query interrupts its thread, and no other one. Then this
      cancels the jobs of the statement, which ends with them. After a second it stops waiting, as
      for a store that does not respond. */
  private static StatementCall await(
      StatementCall call, Future<StatementCall> result, Permit permit) {
    int pauses = -1; // until the query is cancelled
    boolean isAbandoned = false;
    try {
      while (true) {
        try {
          if (pauses < 0) return result.get();
          call.cancel();
          return result.get(PAUSE, TimeUnit.MILLISECONDS);
        } catch (InterruptedException cancelled) {
          pauses = Math.max(pauses, 0);
        } catch (TimeoutException running) {
          if (++pauses < PAUSES) continue;
          permit.abandon();
          THREADS.execute(() -> cancelUntilDone(call, result, permit));
          isAbandoned = true;
          Platform.throwException(new InterruptedException("the statement was cancelled"));
        } catch (ExecutionException failure) {
          Platform.throwException(failure.getCause());
        }
      }
    } finally {
      if (!isAbandoned) permit.release();
      if (pauses >= 0) Thread.currentThread().interrupt();
    }
  }

  /** Waits for an abandoned statement, and cancels each job that it still starts. */
  private static void cancelUntilDone(StatementCall call, Future<?> result, Permit permit) {
    try {
      while (!result.isDone()) {
        call.cancel();
        Thread.sleep(PAUSE);
      }
    } catch (Exception stopped) {
      // Spark has stopped.
    } finally {
      permit.release();
    }
  }

  /**
   * The right to run one statement, or to parse one.
   *
   * <p>A session gets few of all permits, so that one client cannot block the others. A cancelled
   * statement that still runs frees its permit for other sessions, but counts for its own session
   * until it ends; otherwise a client could start any number of threads.
   */
  private static final class Permit {
    private static final int ALL = 32;
    private static final int PER_SESSION = 4;
    private static final Semaphore PARSING = new Semaphore(ALL, true);
    private static final Semaphore RUNNING = new Semaphore(ALL, true);
    private static final Semaphore ABANDONED = new Semaphore(2 * ALL);
    private static final Map<SparkSession, Semaphore> SESSIONS = new WeakHashMap<>();

    private final Semaphore ofSession;
    private Semaphore ofAll;

    private Permit(Semaphore ofSession, Semaphore ofAll) {
      this.ofSession = ofSession;
      this.ofAll = ofAll;
    }

    /** Waits for a permit to run in a session; to parse, if the session is null. */
    static Permit acquire(SparkSession session) {
      Permit permit =
          session == null ? new Permit(null, PARSING) : new Permit(of(session), RUNNING);
      try {
        if (permit.ofSession != null) permit.ofSession.acquire();
        try {
          permit.ofAll.acquire();
        } catch (InterruptedException cancelled) {
          if (permit.ofSession != null) permit.ofSession.release();
          throw cancelled;
        }
      } catch (InterruptedException cancelled) {
        Platform.throwException(cancelled);
      }
      return permit;
    }

    private static Semaphore of(SparkSession session) {
      synchronized (SESSIONS) {
        return SESSIONS.computeIfAbsent(session, key -> new Semaphore(PER_SESSION, true));
      }
    }

    /** Lets others run, unless too many abandoned statements still run. */
    void abandon() {
      if (!ABANDONED.tryAcquire()) return;
      ofAll.release();
      ofAll = ABANDONED;
    }

    void release() {
      ofAll.release();
      if (ofSession != null) ofSession.release();
    }
  }
}
