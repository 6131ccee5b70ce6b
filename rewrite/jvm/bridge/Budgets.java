package rewrite.jvm.bridge;

import java.util.Collections;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkContext$;
import org.apache.spark.sql.execution.SQLExecution;

/**
 * The budgets of the running queries.
 *
 * <p>A query is an SQL execution: its stages, subqueries and exchanges carry its id from thread to
 * thread. A plan that is not executed yet (EXPLAIN, `df.rdd`) belongs to its thread, which gets a
 * new budget with each plan, and after a long time without lookups.
 */
public final class Budgets {
  private static final int CAPACITY = 1000;

  private final ThreadLocal<Budget> ofThread = new ThreadLocal<>();
  private final ThreadLocal<Boolean> isFixed = new ThreadLocal<>();
  private final Map<String, Budget> ofExecutions =
      Collections.synchronizedMap(new RecentMap<>(CAPACITY));

  /** This thread begins another plan. */
  void beginPlan() {
    if (isFixed.get() == null) ofThread.remove();
  }

  /** Starts one budget for all plans of this thread until `release`. */
  public void hold() {
    ofThread.remove();
    isFixed.set(true);
  }

  /** Ends `hold`. */
  public void release() {
    isFixed.remove();
    ofThread.remove();
  }

  /** Returns the budget of the current query; `seconds` is the total of a new one. */
  Budget current(double seconds) {
    String id = execution();
    if (id != null) return ofExecutions.computeIfAbsent(id, key -> new Budget(seconds));
    Budget budget = ofThread.get();
    if (budget == null || budget.isIdle()) ofThread.set(budget = new Budget(seconds));
    return budget;
  }

  /** Returns the execution that this thread works for; a thread may inherit the id of an ended
      one. */
  private static String execution() {
    SparkContext context = ScalaInterop.orNull(SparkContext$.MODULE$.getActive());
    String id = context == null ? null : context.getLocalProperty("spark.sql.execution.id");
    return id == null || SQLExecution.getQueryExecution(Long.parseLong(id)) == null ? null : id;
  }
}
