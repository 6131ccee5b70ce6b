package rewrite.jvm.parser;

import java.util.UUID;
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

  private static final long PAUSE = 100;

  private final BiFunction python;
  private final String secret;

  /** `python` parses (text, null) and runs (text, session), for those who know the `secret`. */
  public StatementCallback(BiFunction python, String secret) {
    this.python = python;
    this.secret = secret;
  }

  /** What parsing a text gives, without a session, or running it in one. */
  Object call(String text, SparkSession session) {
    Call call = new Call(text, session);
    if (hasConnection()) return call.apply();
    Semaphore places = session == null ? PARSING : RUNNING;
    try {
      places.acquire();
    } catch (InterruptedException cancelled) {
      Platform.throwException(cancelled);
    }
    try {
      // Jobs of the statement are of the query: they are cancelled with it, and shown with it.
      Future answer = session == null
          ? THREADS.submit(call)
          : SQLExecution$.MODULE$.withThreadLocalCaptured(
              (org.apache.spark.sql.classic.SparkSession) session, THREADS, call);
      return outcome(answer, call);
    } finally {
      places.release();
    }
  }

  /** Whether the thread is one of these, or one that Python sent and waits for. */
  private static boolean hasConnection() {
    if (Thread.currentThread() instanceof Caller) return true;
    StackTraceElement[] stack = Thread.currentThread().getStackTrace();
    return stack.length > 1
        && stack[stack.length - 2].getClassName().equals("py4j.ClientServerConnection");
  }

  /** Waits until it is over. Who cancels a query interrupts its thread, and no other: then the jobs
      of the statement are cancelled, and it ends with them, or with what it does without one. */
  private static Object outcome(Future answer, Call call) {
    boolean interrupted = false;
    try {
      while (true) {
        try {
          if (interrupted) call.cancel();
          return interrupted ? answer.get(PAUSE, TimeUnit.MILLISECONDS) : answer.get();
        } catch (InterruptedException cancelled) {
          interrupted = true;
        } catch (TimeoutException goesOn) {
          continue;
        } catch (ExecutionException failure) {
          Platform.throwException(failure.getCause());
        }
      }
    } finally {
      if (interrupted) Thread.currentThread().interrupt();
    }
  }

  /** One statement, with the class loader of who asked. */
  private final class Call extends scala.runtime.AbstractFunction0
      implements java.util.concurrent.Callable {
    private final String text;
    private final SparkSession session;
    private final ClassLoader loader = Thread.currentThread().getContextClassLoader();
    private final String tag = "skipping-statement-" + UUID.randomUUID();

    Call(String text, SparkSession session) {
      this.text = text;
      this.session = session;
    }

    public Object call() {
      return apply();
    }

    /** Cancels the jobs that it has now. */
    void cancel() {
      if (session != null) session.sparkContext().cancelJobsWithTag(tag);
    }

    public Object apply() {
      if (session == null || !(Thread.currentThread() instanceof Caller)) return ask();
      session.sparkContext().addJobTag(tag);
      try {
        return ask();
      } finally {
        session.sparkContext().removeJobTag(tag);
      }
    }

    private Object ask() {
      ClassLoader before = Thread.currentThread().getContextClassLoader();
      Thread.currentThread().setContextClassLoader(loader);
      try {
        return python.apply(secret + text, session);
      } finally {
        Thread.currentThread().setContextClassLoader(before);
      }
    }
  }

  /** A thread with a connection of its own, which keeps nothing of the query that made it. */
  private static final class Caller extends Thread {
    Caller(Runnable work) {
      super(null, work, "skipping-statement", 0, false);
      setContextClassLoader(ClassLoader.getSystemClassLoader());
      setDaemon(true);
    }
  }

  private static final class Callers implements ThreadFactory {
    public Thread newThread(Runnable work) {
      return new Caller(work);
    }
  }
}
