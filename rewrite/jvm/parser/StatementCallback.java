package rewrite.jvm.parser;

import java.util.Map;
import java.util.WeakHashMap;
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
import org.apache.spark.unsafe.Platform;
import rewrite.jvm.shims.Sessions;

/**
 * Python's half of the statements.
 *
 * <p>Py4J keeps a connection, and a thread at both ends, for every thread that ever called, and the
 * servers for Connect and JDBC make a thread a query. So threads that Python did not send have
 * others call, which live as long as this JVM. Statements beyond their number wait, see `Place`.
 */
public final class StatementCallback {
  private static final ExecutorService THREADS =
      new ThreadPoolExecutor(
          0, Integer.MAX_VALUE, Long.MAX_VALUE, TimeUnit.NANOSECONDS, new SynchronousQueue(),
          new Callers());

  private static final long PAUSE = 100; // milliseconds
  private static final int PAUSES = 10;

  private volatile BiFunction python;
  private String secret;

  /** From now on `python` parses (text, null) and runs (text, StatementCall), for those who know
      the `secret`. */
  public void connect(BiFunction python, String secret) {
    this.secret = secret;
    this.python = python; // last: it is volatile
  }

  /** What parsing a text gives, without a session, or running it in one. */
  Object call(String text, SparkSession session) {
    if (python == null) throw new IllegalStateException("rewrite.enable was not called");
    StatementCall call = new StatementCall(python, secret + text, session);
    if (hasConnection()) return call.result(call.apply());
    Place place = Place.take(session);
    Waiting waiting = new Waiting(call, place);
    try {
      // Jobs of the statement are of the query: they are cancelled with it, and shown with it.
      waiting.answer = session == null
          ? THREADS.submit(call)
          : Sessions.submit(session, THREADS, call);
    } finally {
      if (waiting.answer == null) place.giveBack();
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
    private final Place place;
    private Future answer;

    Waiting(StatementCall call, Place place) {
      this.call = call;
      this.place = place;
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
            place.leave();
            THREADS.execute(this);
            isLeft = true;
            Platform.throwException(new InterruptedException("the statement was cancelled"));
          } catch (ExecutionException failure) {
            Platform.throwException(failure.getCause());
          }
        }
      } finally {
        if (!isLeft) place.giveBack();
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
        place.giveBack();
      }
    }
  }

  /**
   * The right to run one statement, or to parse one.
   *
   * <p>A session has few of all places, so that one client cannot keep the others waiting. A
   * statement that was cancelled and still goes on makes room for those of other sessions, but
   * counts for its own until it ends: else a client could start any number of threads.
   */
  private static final class Place {
    private static final int AT_ONCE = 32;
    private static final int OF_SESSION = 4;
    private static final Semaphore PARSING = new Semaphore(AT_ONCE, true);
    private static final Semaphore RUNNING = new Semaphore(AT_ONCE, true);
    private static final Semaphore LEFT = new Semaphore(2 * AT_ONCE);
    private static final Map SESSIONS = new WeakHashMap();

    private final Semaphore ofSession;
    private Semaphore ofAll;

    private Place(Semaphore ofSession, Semaphore ofAll) {
      this.ofSession = ofSession;
      this.ofAll = ofAll;
    }

    /** Waits for a place to run in a session; without one, to parse. */
    static Place take(SparkSession session) {
      Semaphore ofSession = session == null ? null : of(session);
      Semaphore ofAll = session == null ? PARSING : RUNNING;
      try {
        if (ofSession != null) ofSession.acquire();
        try {
          ofAll.acquire();
        } catch (InterruptedException cancelled) {
          if (ofSession != null) ofSession.release();
          throw cancelled;
        }
      } catch (InterruptedException cancelled) {
        Platform.throwException(cancelled);
      }
      return new Place(ofSession, ofAll);
    }

    private static Semaphore of(SparkSession session) {
      synchronized (SESSIONS) {
        Semaphore found = (Semaphore) SESSIONS.get(session);
        if (found == null) {
          found = new Semaphore(OF_SESSION, true);
          SESSIONS.put(session, found);
        }
        return found;
      }
    }

    /** Lets others run, unless too many cancelled statements go on already. */
    void leave() {
      if (!LEFT.tryAcquire()) return;
      ofAll.release();
      ofAll = LEFT;
    }

    void giveBack() {
      ofAll.release();
      if (ofSession != null) ofSession.release();
    }
  }

  private static final class Callers implements ThreadFactory {
    public Thread newThread(Runnable work) {
      return new CallerThread(work);
    }
  }
}
