package rewrite.jvm.parser;

import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.function.BiFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import rewrite.jvm.bridge.PythonCallback;

/**
 * One statement that Python parses, or runs in a session, with the class loader of the caller.
 *
 * <p>Python gets this object to run a statement, and gives it the rows. It cannot return them: Py4J
 * drops an object as soon as Python does, at times before Java has read the reply that names it.
 */
public final class StatementCall implements Callable<StatementCall> {
  private final BiFunction<String, StatementCall, String> python;
  private final String text;
  private final SparkSession session;
  private final ClassLoader loader = Thread.currentThread().getContextClassLoader();
  private final String tag = "skipping-statement-" + UUID.randomUUID();
  private volatile String json;
  private volatile Dataset<Row> rows;

  /** `session` is null if the statement is only parsed. */
  StatementCall(
      BiFunction<String, StatementCall, String> python, String text, SparkSession session) {
    this.python = python;
    this.text = text;
    this.session = session;
  }

  public SparkSession session() {
    return session;
  }

  /** Takes the rows from Python, while it still has them. */
  public void answer(Dataset<Row> rows) {
    this.rows = rows;
  }

  /** Returns Python's reply; null for a statement that gave rows. */
  String json() {
    return json;
  }

  Dataset<Row> rows() {
    return rows;
  }

  /** Cancels the jobs that the statement has now. */
  void cancel() {
    if (session != null) session.sparkContext().cancelJobsWithTag(tag);
  }

  /** Calls Python; returns this call, with the result. */
  @Override public StatementCall call() {
    boolean isApart = session != null && Thread.currentThread() instanceof CallerThread;
    if (isApart) session.sparkContext().addJobTag(tag);
    ClassLoader before = Thread.currentThread().getContextClassLoader();
    Thread.currentThread().setContextClassLoader(loader);
    try {
      json = PythonCallback.apply(python, text, session == null ? null : this);
      return this;
    } finally {
      Thread.currentThread().setContextClassLoader(before);
      if (isApart) session.sparkContext().removeJobTag(tag);
    }
  }
}
