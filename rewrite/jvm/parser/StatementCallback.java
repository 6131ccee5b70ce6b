package rewrite.jvm.parser;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.unsafe.Platform;

/**
 * Python's half of the statements.
 *
 * <p>Py4J keeps a connection, and a thread at both ends, for every thread that ever called, and the
 * servers for Connect and JDBC make a thread a query. So threads that Python did not send have
 * others call, which are as many as statements ran at once, and live as long as this JVM.
 */
public final class StatementCallback {
  private static final ExecutorService THREADS =
      new ThreadPoolExecutor(
          0, Integer.MAX_VALUE, Long.MAX_VALUE, TimeUnit.NANOSECONDS, new SynchronousQueue(),
          new Callers());

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
    // Jobs of the statement are of the query: they are cancelled with it, and shown with it.
    Future answer = session == null
        ? THREADS.submit(call)
        : SQLExecution$.MODULE$.withThreadLocalCaptured(
            (org.apache.spark.sql.classic.SparkSession) session, THREADS, call);
    return outcome(answer);
  }

  /** Whether the thread is one of these, or one that Python sent and waits for. */
  private static boolean hasConnection() {
    if (Thread.currentThread() instanceof Caller) return true;
    StackTraceElement[] stack = Thread.currentThread().getStackTrace();
    return stack.length > 1
        && stack[stack.length - 2].getClassName().equals("py4j.ClientServerConnection");
  }

  /** Waits as a call would: a thread that is interrupted stays so, and its jobs are cancelled. */
  private static Object outcome(Future answer) {
    boolean interrupted = false;
    try {
      while (true) {
        try {
          return answer.get();
        } catch (InterruptedException later) {
          interrupted = true;
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

    Call(String text, SparkSession session) {
      this.text = text;
      this.session = session;
    }

    public Object call() {
      return apply();
    }

    public Object apply() {
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
      setDaemon(true);
    }
  }

  private static final class Callers implements ThreadFactory {
    public Thread newThread(Runnable work) {
      return new Caller(work);
    }
  }
}
