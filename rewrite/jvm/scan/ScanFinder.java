package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.ColumnarToRowExec;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.InputAdapter;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SortExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.UnaryExecNode;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.ExchangeQueryStageExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.ScanNotes;

/** Finds the scans of a physical plan, from the root down, and the uppermost filter of each. */
public final class ScanFinder {
  private static final TreeNodeTag FILLED = new TreeNodeTag("rewrite.filled");
  private static final String NOT_READ =
      "Spark left it out while the query ran, as another part of the query had no rows";

  private final Rule rule;
  private final List found = new ArrayList();
  private final Map filters = new IdentityHashMap();
  private final Set seen = Collections.newSetFromMap(new IdentityHashMap()); // what plans share
  private final Set drained = Collections.newSetFromMap(new IdentityHashMap());
  private final List reused = new ArrayList();
  private final List finals = new ArrayList(); // plans of adaptive execution that are final
  private final Map caches = new IdentityHashMap(); // of a scan in a cached plan that plan
  private final Set read = new HashSet(); // what tells the tables apart that stages read

  /** `rule` is applied where adaptive execution will do so later; null: what was done stands. */
  public ScanFinder(SparkPlan plan, Rule rule) {
    this.rule = rule;
    visit(plan);
    addRest(0, 0);
  }

  /** Finds what is not in the plans as they are now, of those from some places on. */
  private void addRest(int firstReused, int firstFinal) {
    // What the join and its keys share may have been computed for the keys, beside the plan.
    for (int i = firstReused; i < reused.size(); i++) {
      visit(((ReusedExchangeExec) reused.get(i)).child());
    }
    for (int i = firstFinal; i < finals.size(); i++) {
      addDropped((AdaptiveSparkPlanExec) finals.get(i));
    }
  }

  /** Finds what adaptive execution took out of a plan: stages that ran, and scans that did not. */
  private void addDropped(AdaptiveSparkPlanExec plan) {
    List stages = ScalaInterop.asJava(plan.context().stageCache().values());
    for (int i = 0; i < stages.size(); i++) {
      QueryStageExec stage = (QueryStageExec) stages.get(i);
      // Those that keys of a join were collected by read what the join reads.
      if (stage.isMaterialized() && !read.containsAll(keys(stage))) visit(stage);
    }
    addUnread(plan.initialPlan());
  }

  private void addUnread(SparkPlan plan) {
    List keys = isScan(plan) ? keys(plan) : new ArrayList();
    if (!keys.isEmpty() && Collections.disjoint(read, keys)) {
      found.add(ScanNotes.unpruned(plan, NOT_READ));
      read.addAll(keys);
    }
    List children = ScalaInterop.asJava(plan.children());
    for (int i = 0; i < children.size(); i++) {
      addUnread((SparkPlan) children.get(i));
    }
  }

  /** What tells the tables apart that a part of a plan reads, each time that it is named. */
  private static List keys(SparkPlan plan) {
    List out = new ArrayList();
    List leaves = ScanNotes.leaves(plan);
    for (int i = 0; i < leaves.size(); i++) {
      LogicalPlan leaf = (LogicalPlan) leaves.get(i);
      out.add(leaf.output().isEmpty() ? leaf : leaf.output().head().exprId());
    }
    return out;
  }

  /** Notes that a part of a plan is computed to its last row: of a scan in it with nothing on top
      that may stop early, as a LIMIT does, every row was read. */
  public void drain(SparkPlan plan) {
    SparkPlan below = plan;
    while (true) {
      if (below instanceof AdaptiveSparkPlanExec) {
        below = ((AdaptiveSparkPlanExec) below).executedPlan();
      } else if (below instanceof QueryStageExec) {
        below = ((QueryStageExec) below).plan();
      } else if (below instanceof FilterExec || below instanceof ProjectExec
          || below instanceof SortExec || below instanceof BaseAggregateExec
          || below instanceof ColumnarToRowExec || below instanceof WholeStageCodegenExec
          || below instanceof InputAdapter) {
        below = below.children().head();
      } else {
        break;
      }
    }
    if (isScan(below)) drained.add(below);
  }

  /** Whether every row of a scan was read. */
  public boolean isDrained(SparkPlan scan) {
    return drained.contains(scan);
  }

  /** Whether a scan fills a cache. */
  public boolean isCached(SparkPlan scan) {
    return caches.containsKey(scan);
  }

  /** Whether a scan filled a cache before. */
  public boolean isFilled(SparkPlan scan) {
    SparkPlan cached = (SparkPlan) caches.get(scan);
    return cached != null && cached.getTagValue(FILLED).isDefined();
  }

  /** Notes that the caches in the plan are filled now. */
  public void noteFilled() {
    for (Iterator each = caches.values().iterator(); each.hasNext(); ) {
      ((SparkPlan) each.next()).setTagValue(FILLED, Boolean.TRUE);
    }
  }

  /** The nodes of the plan that the calling thread executes which are scans. */
  public static List running() {
    String id = SparkContext.getOrCreate().getLocalProperty("spark.sql.execution.id");
    QueryExecution running = id == null ? null : SQLExecution.getQueryExecution(Long.parseLong(id));
    return running == null
        ? new ArrayList()
        : new ScanFinder(running.executedPlan(), null).scans();
  }

  /** The nodes that are scans. */
  public List scans() {
    return found;
  }

  /** The uppermost filter of a scan; null: it has none. */
  public FilterExec filter(SparkPlan scan) {
    return (FilterExec) filters.get(scan);
  }

  private static boolean isScan(SparkPlan plan) {
    return plan instanceof FileSourceScanExec || plan instanceof BatchScanExec;
  }

  private void visit(SparkPlan plan) {
    if (plan instanceof FilterExec) above(plan);
    if (plan instanceof Exchange) {
      if (!seen.add(plan)) return;
      drain(plan.children().head());
    }
    if (isScan(plan)) {
      found.add(plan);
      read.addAll(keys(plan));
    } else if (plan instanceof AdaptiveSparkPlanExec) {
      adaptive((AdaptiveSparkPlanExec) plan);
    } else if (plan instanceof QueryStageExec) {
      SparkPlan stage = ((QueryStageExec) plan).plan();
      // That of the result stands for the whole query as it was.
      if (plan instanceof ExchangeQueryStageExec) read.addAll(keys(plan));
      if (stage instanceof ReusedExchangeExec) reused.add(stage);
      visit(stage);
    } else if (plan instanceof InMemoryTableScanExec) {
      SparkPlan cached = ((InMemoryTableScanExec) plan).relation().cachedPlan();
      if (seen.add(cached)) {
        int first = found.size();
        int firstReused = reused.size();
        int firstFinal = finals.size();
        visit(cached);
        addRest(firstReused, firstFinal);
        for (int i = first; i < found.size(); i++) caches.put(found.get(i), cached);
      }
    } else if (!(plan instanceof ReusedExchangeExec)) {
      all(plan.children());
    }
    all(plan.subqueries());
  }

  /** Notes the uppermost filter of a scan. */
  private void above(SparkPlan filter) {
    SparkPlan below = filter;
    while (below instanceof UnaryExecNode && !(below instanceof Exchange)) {
      below = ((UnaryExecNode) below).child();
    }
    if (isScan(below) && !filters.containsKey(below)) filters.put(below, filter);
  }

  private void adaptive(AdaptiveSparkPlanExec plan) {
    if (plan.isFinalPlan()) finals.add(plan);
    boolean later = rule != null && !plan.isFinalPlan();
    visit(later ? (SparkPlan) rule.apply(plan.executedPlan()) : plan.executedPlan());
  }

  private void all(scala.collection.Iterable plans) {
    List list = ScalaInterop.asJava(plans);
    for (int i = 0; i < list.size(); i++) {
      visit((SparkPlan) list.get(i));
    }
  }
}
