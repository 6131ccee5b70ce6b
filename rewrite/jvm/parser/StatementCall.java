package rewrite.jvm.parser;

import java.util.UUID;
import java.util.function.BiFunction;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.Dataset;
import rewrite.jvm.bridge.PythonCallback;

/**
 * One statement: to be parsed, or run in a session, with the class loader of who asked.
 *
 * <p>Python gets this object where a statement is run, and leaves the rows here. As what its call
 * gives back they would not do: Py4J lets go of an object as soon as Python does, which at times is
 * before Java has read the reply that names it.
 */
public final class StatementCall extends scala.runtime.AbstractFunction0
    implements java.util.concurrent.Callable {
  private final BiFunction python;
  private final String text;
  private final SparkSession session;
  private final ClassLoader loader = Thread.currentThread().getContextClassLoader();
  private final String tag = "skipping-statement-" + UUID.randomUUID();
  private volatile Dataset rows;

  /** `session` is null where it is only parsed. */
  StatementCall(BiFunction python, String text, SparkSession session) {
    this.python = python;
    this.text = text;
    this.session = session;
  }

  /** The session that it is run in. */
  public SparkSession session() {
    return session;
  }

  /** Python's answer, while it still holds it. */
  public void answer(Dataset rows) {
    this.rows = rows;
  }

  /** What its call gave: text in JSON, or the rows. */
  Object result(Object reply) {
    return reply == null ? rows : reply;
  }

  /** Cancels the jobs that it has now. */
  void cancel() {
    if (session != null) session.sparkContext().cancelJobsWithTag(tag);
  }

  public Object call() {
    return apply();
  }

  /** Has Python do it; its reply, see `result`. */
  public Object apply() {
    boolean isApart = session != null && Thread.currentThread() instanceof CallerThread;
    if (!isApart) return ask();
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
      return PythonCallback.apply(python, text, session == null ? null : this);
    } finally {
      Thread.currentThread().setContextClassLoader(before);
    }
  }
}
