package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.UnaryExecNode;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import rewrite.jvm.bridge.ScalaInterop;

/** Finds the scans of a physical plan, from the root down, and the uppermost filter of each. */
public final class ScanFinder {
  private final Rule rule;
  private final List found = new ArrayList();
  private final Map filters = new IdentityHashMap();
  private final Set seen = Collections.newSetFromMap(new IdentityHashMap()); // what plans share
  private final List reused = new ArrayList();

  /** `rule` is applied where adaptive execution will do so later; null: what was done stands. */
  public ScanFinder(SparkPlan plan, Rule rule) {
    this.rule = rule;
    visit(plan);
    // What the join and its keys share may have been computed for the keys, beside the plan.
    for (int i = 0; i < reused.size(); i++) {
      SparkPlan exchange = ((ReusedExchangeExec) reused.get(i)).child();
      if (!seen.contains(exchange)) visit(exchange);
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
    if (plan instanceof Exchange) seen.add(plan);
    if (isScan(plan)) {
      found.add(plan);
    } else if (plan instanceof AdaptiveSparkPlanExec) {
      adaptive((AdaptiveSparkPlanExec) plan);
    } else if (plan instanceof QueryStageExec) {
      SparkPlan stage = ((QueryStageExec) plan).plan();
      if (stage instanceof ReusedExchangeExec) reused.add(stage);
      visit(stage);
    } else if (plan instanceof InMemoryTableScanExec) {
      SparkPlan cached = ((InMemoryTableScanExec) plan).relation().cachedPlan();
      if (seen.add(cached)) visit(cached);
    } else if (!(plan instanceof ReusedExchangeExec)) {
      all(plan.children());
    }
    all(plan.subqueries());
  }

  /** Notes the uppermost filter of a scan. */
  private void above(SparkPlan filter) {
    SparkPlan below = filter;
    while (below instanceof UnaryExecNode && !(below instanceof Exchange)) {
      below = (SparkPlan) ((UnaryExecNode) below).child();
    }
    if (isScan(below) && !filters.containsKey(below)) filters.put(below, filter);
  }

  private void adaptive(AdaptiveSparkPlanExec plan) {
    boolean later = rule != null && !plan.isFinalPlan();
    visit(later ? (SparkPlan) rule.apply(plan.executedPlan()) : plan.executedPlan());
  }

  private void all(scala.collection.Iterable plans) {
    List list = ScalaInterop.list(plans);
    for (int i = 0; i < list.size(); i++) {
      visit((SparkPlan) list.get(i));
    }
  }
}
