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
import org.apache.spark.scheduler.SparkListener;
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
 * Remembers what the last executions read, and finds those that a DataFrame was part of.
 *
 * <p>A command is an execution around those that do its work: DELETE one that looks for rows, and
 * one that writes.
 *
 * <p>show, count and write wrap a DataFrame's plan in another one, so an execution is found by the
 * hashes of all its subtrees: column ids make a DataFrame's plan its own. Plans are not kept.
 *
 * <p>The thread of the listener only notes what is known: whatever has to look at a table is done
 * by whoever asks.
 */
public final class ExecutionLog extends SparkListener {
  private static final int KEPT = 100;
  private static final String EXPLAIN = "explain";

  /** Characters of a statement that are kept. */
  private static final int LONGEST = 10000;

  /** Of so many executions the tables are held, till somebody wants them described. */
  private static final int HELD = 10;

  private final ScanReport scans;
  private final Deque executions = new ArrayDeque();
  private final Deque undescribed = new ArrayDeque();
  /** Of executions that run, the ids of those that they are part of; the listener's thread alone
      knows it. */
  private final Map roots = new HashMap();
  private final TableTotals totals = new TableTotals();
  private final UnusedPredicates questions = new UnusedPredicates();

  public ExecutionLog(ScanReport scans) {
    super();
    this.scans = scans;
  }

  public void onOtherEvent(SparkListenerEvent event) {
    try {
      note(event);
    } catch (Throwable failure) {
      Failures.passOn(failure);
      // Else explain lacks one execution; the query itself has long ended.
    }
  }

  private void note(SparkListenerEvent event) {
    if (event instanceof SparkListenerSQLExecutionStart) {
      SparkListenerSQLExecutionStart start = (SparkListenerSQLExecutionStart) event;
      Long id = Long.valueOf(start.executionId());
      roots.put(id, start.rootExecutionId().isDefined() ? start.rootExecutionId().get() : id);
    }
    if (!(event instanceof SparkListenerSQLExecutionEnd)) return;
    final SparkListenerSQLExecutionEnd end = (SparkListenerSQLExecutionEnd) event;
    final Object root = roots.remove(Long.valueOf(end.executionId()));
    // The plan of a query that failed may be unfinished; asking for it would go on planning.
    if (end.qe() == null || end.executionFailure().isDefined()) return;
    // Under the settings of the query's session, whatever this thread's are.
    SQLConf$.MODULE$.withExistingConf(
        end.qe().sparkSession().sessionState().conf(), new scala.runtime.AbstractFunction0() {
          public Object apply() {
            remember(end, root);
            return null;
          }
        });
  }

  private void remember(SparkListenerSQLExecutionEnd end, Object root) {
    Execution execution = new Execution();
    execution.id = end.executionId();
    execution.root = root == null ? execution.id : ((Long) root).longValue();
    execution.name = end.executionName().isDefined() ? end.executionName().get() : "query";
    execution.statement = statement(end.qe().logical());
    execution.showsValues = SkippingConf.showsValues();
    execution.ended = end.time();
    execution.seconds = end.duration() / 1e9;
    boolean isDrained = execution.name.startsWith("collect") || execution.name.equals(EXPLAIN);
    execution.scans = scans.known(end.qe().executedPlan(), isDrained, questions);
    totals.add(execution.scans);
    addHashes(end.qe().logical(), execution.hashes);
    addHashes(end.qe().analyzed(), execution.hashes);
    synchronized (executions) {
      executions.addLast(execution);
      if (executions.size() > KEPT) executions.removeFirst();
      undescribed.addLast(execution);
      if (undescribed.size() > HELD) ((Execution) undescribed.removeFirst()).forget();
    }
  }

  /** The SQL that a plan, or all that it reads, was parsed from, as far as reports show some of it;
      null: there is none. */
  private static String statement(LogicalPlan plan) {
    LogicalPlan part = plan;
    while (part.origin().sqlText().isEmpty()) {
      // That of a view is somebody else's.
      if (part instanceof SubqueryAlias || part.children().size() != 1) return null;
      part = part.children().head();
    }
    String text = part.origin().sqlText().get();
    return text.substring(0, Math.min(text.length(), LONGEST));
  }

  private static void addHashes(LogicalPlan plan, Set hashes) {
    if (!hashes.add(Integer.valueOf(plan.hashCode()))) return;
    List below = ScalaInterop.list(plan.children());
    below.addAll(ScalaInterop.list(plan.innerChildren()));
    for (int i = 0; i < below.size(); i++) {
      if (below.get(i) instanceof LogicalPlan) addHashes((LogicalPlan) below.get(i), hashes);
    }
  }

  /** Runs a query and throws its rows away where they are. A write would be planned otherwise. */
  public void run(final QueryExecution query) {
    SQLExecution$.MODULE$.withNewExecutionId(
        query, scala.Option.apply(EXPLAIN), new scala.runtime.AbstractFunction0() {
          public Object apply() {
            return Long.valueOf(query.toRdd().count());
          }
        });
  }

  /** The executions of a DataFrame, and those that are part of them, as JSON, oldest first: id,
      root, name, scans. */
  public String of(QueryExecution query) {
    return describe(Integer.valueOf(query.analyzed().hashCode()));
  }

  /** The last executions as JSON, oldest first: id, name, when they ended and how long they took.
      */
  public String recent() {
    return describe(null);
  }

  /** Those with a plan of this hash, and their parts; null: all. */
  private String describe(Integer hash) {
    List found = new ArrayList();
    Set wholes = new HashSet();
    synchronized (executions) {
      // A part ends before the whole.
      for (Iterator each = executions.descendingIterator(); each.hasNext(); ) {
        Execution execution = (Execution) each.next();
        boolean isMeant = hash == null || execution.hashes.contains(hash);
        if (isMeant) wholes.add(Long.valueOf(execution.id));
        if (isMeant || wholes.contains(Long.valueOf(execution.root))) found.add(0, execution);
      }
      undescribed.removeAll(found);
    }
    // The listener's thread does not wait for this.
    for (int i = 0; i < found.size(); i++) {
      found.set(i, ((Execution) found.get(i)).describe());
    }
    return Json.write(found);
  }

  /** What they asked in vain. */
  public UnusedPredicates questions() {
    return questions;
  }

  /** Sums over all executions. */
  public TableTotals totals() {
    return totals;
  }

  /** What is kept of one. */
  private static final class Execution {
    private long id;
    private long root;
    private String name;
    private String statement;
    private boolean showsValues;
    private long ended;
    private double seconds;
    private List scans;
    private final Set hashes = new HashSet();

    /** Lets go of the tables. */
    synchronized void forget() {
      for (int i = 0; i < scans.size(); i++) {
        ((Map) scans.get(i)).remove("format");
      }
    }

    synchronized Map describe() {
      for (int i = 0; i < scans.size(); i++) {
        Map scan = (Map) scans.get(i);
        if (!(scan.get("format") instanceof List)) scan.put("format", Sizes.of(scan.get("format")));
      }
      Map found = new HashMap();
      found.put("id", Long.valueOf(id));
      found.put("root", Long.valueOf(root));
      found.put("name", name);
      found.put("statement", statement);
      found.put("values", Boolean.valueOf(showsValues));
      found.put("ended", Long.valueOf(ended));
      found.put("seconds", Double.valueOf(seconds));
      found.put("scans", scans);
      return found;
    }
  }
}
