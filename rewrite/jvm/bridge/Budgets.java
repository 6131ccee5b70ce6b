package rewrite.jvm.bridge;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.execution.SQLExecution;

/**
 * The budgets of the queries under way.
 *
 * <p>A query is an SQL execution: its stages, sub-queries and exchanges carry its id from thread to
 * thread. A plan that nobody executes yet (EXPLAIN, `df.rdd`) is known by its thread, which begins
 * a new budget with each plan, and when it has not asked for long.
 */
public final class Budgets {
  private static final int KEPT = 1000;

  private final ThreadLocal planned = new ThreadLocal();
  private final ThreadLocal held = new ThreadLocal();
  private final Map executions = new LinkedHashMap(16, 0.75f, true) {
    protected boolean removeEldestEntry(Map.Entry eldest) {
      return size() > KEPT;
    }
  };

  /** This thread begins another plan. */
  public void plan() {
    if (held.get() == null) planned.remove();
  }

  /** All that this thread plans until `release` has one budget. */
  public void hold() {
    planned.remove();
    held.set(Boolean.TRUE);
  }

  /** See `hold`. */
  public void release() {
    held.remove();
    planned.remove();
  }

  /** That of the query which asks; `seconds` is what a new one has. */
  public Budget now(double seconds) {
    String id = execution();
    if (id == null) {
      Budget budget = (Budget) planned.get();
      if (budget == null || budget.isIdle()) planned.set(budget = new Budget(seconds));
      return budget;
    }
    synchronized (executions) {
      Budget budget = (Budget) executions.get(id);
      if (budget == null) executions.put(id, budget = new Budget(seconds));
      return budget;
    }
  }

  /** The execution that this thread works for; threads inherit ids of such as have ended. */
  private static String execution() {
    scala.Option context = org.apache.spark.SparkContext$.MODULE$.getActive();
    if (context.isEmpty()) return null;
    String id = ((SparkContext) context.get()).getLocalProperty("spark.sql.execution.id");
    return id == null || SQLExecution.getQueryExecution(Long.parseLong(id)) == null ? null : id;
  }
}
