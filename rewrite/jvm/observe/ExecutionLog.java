package rewrite.jvm.observe;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionEnd;
import org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart;
import org.apache.spark.sql.internal.SQLConf$;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.Json;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.source.Sizes;

/**
 * Records what the last executions read, and finds those that a DataFrame was part of.
 *
 * <p>A command is an execution around those that do its work: DELETE has one that looks for rows,
 * and one that writes.
 *
 * <p>show, count and write wrap a DataFrame's plan in another one, so an execution is found by the
 * hashes of all its subtrees: column ids make a DataFrame's plan unique. Plans are not kept.
 *
 * <p>The listener's thread only records what is known; the caller that wants a description looks at
 * the tables.
 */
public final class ExecutionLog extends SparkListener {
  private static final int EXECUTIONS = 100;
  private static final int STATEMENT_LENGTH = 10000;
  private static final String EXPLAIN = "explain";

  /** The last executions whose tables are held until a caller wants them described. */
  private static final int UNDESCRIBED = 10;

  private final ScanReport scans;
  private final Deque<Execution> executions = new ArrayDeque<>();
  private final Deque<Execution> undescribed = new ArrayDeque<>();
  /** Running executions, and those that they are part of; only the listener's thread uses it. */
  private final Map<Long, Long> roots = new HashMap<>();
  private final TableTotals totals = new TableTotals();
  private final Workload workload = new Workload();

  public ExecutionLog(ScanReport scans) {
    this.scans = scans;
  }

  @Override public void onOtherEvent(SparkListenerEvent event) {
    try {
      if (event instanceof SparkListenerSQLExecutionStart start) {
        Long root = (Long) ScalaInterop.orNull(start.rootExecutionId());
        roots.put(start.executionId(), root == null ? start.executionId() : root);
      } else if (event instanceof SparkListenerSQLExecutionEnd end) {
        finish(end);
      }
    } catch (Throwable failure) {
      // Then explain lacks one execution; the query itself has ended.
      Failures.passOn(failure);
    }
  }

  /** Lets go of the tables: they hold their session, and by that keep this object in memory. */
  @Override public void onApplicationEnd(SparkListenerApplicationEnd end) {
    try {
      synchronized (executions) {
        undescribed.forEach(Execution::forget);
        undescribed.clear();
      }
    } catch (Throwable failure) {
      Failures.passOn(failure);
    }
  }

  private void finish(SparkListenerSQLExecutionEnd end) {
    Long root = roots.remove(end.executionId());
    // The plan of a query that failed may be unfinished; asking for it would go on planning.
    if (end.qe() == null || end.executionFailure().isDefined()) return;
    // Under the settings of the query's session, whatever this thread's are.
    SQLConf$.MODULE$.withExistingConf(
        end.qe().sparkSession().sessionState().conf(),
        () -> {
          record(end, root == null ? end.executionId() : root);
          return null;
        });
  }

  private void record(SparkListenerSQLExecutionEnd end, long root) {
    String name = end.executionName().isDefined() ? end.executionName().get() : "query";
    boolean isDrained = name.startsWith("collect") || name.equals(EXPLAIN);
    Set<Integer> hashes = new HashSet<>();
    addHashes(end.qe().logical(), hashes);
    addHashes(end.qe().analyzed(), hashes);
    List<Workload.Scan> ran = new ArrayList<>();
    Execution execution =
        new Execution(
            end.executionId(), root, name, statement(end.qe().logical()),
            SkippingConf.showsValues(), end.time(), end.duration() / 1e9,
            scans.summarize(end.qe().executedPlan(), isDrained, ran), hashes);
    totals.add(execution.scans);
    workload.add(
        Workload.Place.of(end.time(), SkippingConf.store(), SkippingConf.remembersWorkload()), ran);
    synchronized (executions) {
      executions.addLast(execution);
      if (executions.size() > EXECUTIONS) executions.removeFirst();
      undescribed.addLast(execution);
      if (undescribed.size() > UNDESCRIBED) undescribed.removeFirst().forget();
    }
  }

  /** Returns the beginning of the SQL that a plan, or all that it reads, was parsed from; null if
      it is not known. */
  private static String statement(LogicalPlan plan) {
    LogicalPlan part = plan;
    while (part.origin().sqlText().isEmpty()) {
      // That of a view is another user's.
      if (part instanceof SubqueryAlias || part.children().size() != 1) return null;
      part = part.children().head();
    }
    String text = part.origin().sqlText().get();
    return text.substring(0, Math.min(text.length(), STATEMENT_LENGTH));
  }

  private static void addHashes(LogicalPlan plan, Set<Integer> hashes) {
    if (!hashes.add(plan.hashCode())) return;
    List<Object> below = ScalaInterop.asJava(plan.children());
    below.addAll(ScalaInterop.asJava(plan.innerChildren()));
    for (Object child : below) {
      if (child instanceof LogicalPlan logical) addHashes(logical, hashes);
    }
  }

  /** Runs a query and discards its rows where they are. A write would be planned differently. */
  public void run(QueryExecution query) {
    SQLExecution$.MODULE$.withNewExecutionId(
        query, scala.Option.apply(EXPLAIN), () -> query.toRdd().count());
  }

  /** Returns the executions of a DataFrame, and those that are part of them, as JSON, oldest first:
      id, root, name, scans. */
  public String of(QueryExecution query) {
    int hash = query.analyzed().hashCode();
    return describe(execution -> execution.hashes.contains(hash));
  }

  /** Returns the last executions as JSON, oldest first: id, name, end and duration. */
  public String recent() {
    return describe(execution -> true);
  }

  /** Returns the executions that a test accepts, and their parts. */
  private String describe(Predicate<Execution> test) {
    Deque<Execution> found = new ArrayDeque<>();
    Set<Long> complete = new HashSet<>();
    synchronized (executions) {
      // A part ends before the whole.
      for (Iterator<Execution> each = executions.descendingIterator(); each.hasNext(); ) {
        Execution execution = each.next();
        boolean isMeant = test.test(execution);
        if (isMeant) complete.add(execution.id);
        if (!isMeant && !complete.contains(execution.root)) continue;
        found.addFirst(execution);
        undescribed.removeIf(held -> held == execution);
      }
    }
    // The listener's thread does not wait for this.
    return Json.write(found.stream().map(Execution::describe).toList());
  }

  /** What queries read and skipped, by day, table and predicate. */
  public Workload workload() {
    return workload;
  }

  public TableTotals totals() {
    return totals;
  }

  private record Execution(
      long id, long root, String name, String statement, boolean showsValues, long ended,
      double seconds, List<Map<String, Object>> scans, Set<Integer> hashes) {

    /** Lets go of the tables. */
    synchronized void forget() {
      scans.forEach(scan -> scan.remove("format"));
    }

    synchronized Map<String, Object> describe() {
      for (Map<String, Object> scan : scans) {
        if (!(scan.get("format") instanceof List)) scan.put("format", Sizes.of(scan.get("format")));
      }
      Map<String, Object> out = new HashMap<>();
      out.put("id", id);
      out.put("root", root);
      out.put("name", name);
      out.put("statement", statement);
      out.put("values", showsValues);
      out.put("ended", ended);
      out.put("seconds", seconds);
      out.put("scans", scans);
      return out;
    }
  }
}
