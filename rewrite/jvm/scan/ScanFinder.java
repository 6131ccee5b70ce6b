package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.ColumnarToRowTransition;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.InputAdapter;
import org.apache.spark.sql.execution.ProjectExec;
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
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.ScanNotes;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.RunningPlan;
import rewrite.jvm.source.ScanSources;

/** Finds the scans of a physical plan, from the root down, and the uppermost filter of each. */
public final class ScanFinder {
  private static final TreeNodeTag<Boolean> FILLED = new TreeNodeTag<>("rewrite.filled");
  private static final String NOT_READ =
      "Spark left it out while the query ran, as another part of the query had no rows";

  private final Rule<SparkPlan> rule;
  private final List<SparkPlan> scans = new ArrayList<>();
  private final Map<SparkPlan, SparkPlan> filters = new IdentityHashMap<>();
  private final Set<SparkPlan> shared = Collections.newSetFromMap(new IdentityHashMap<>());
  private final Set<SparkPlan> drained = Collections.newSetFromMap(new IdentityHashMap<>());
  private final List<ReusedExchangeExec> reused = new ArrayList<>();
  private final List<AdaptiveSparkPlanExec> finalPlans = new ArrayList<>();
  private final Map<SparkPlan, SparkPlan> caches = new IdentityHashMap<>(); // cached plan by scan
  private final Set<Object> tablesRead = new HashSet<>();

  /** Finds the scans of a plan. Applies `rule` where adaptive execution will apply it later; null:
      the plan has run. */
  public ScanFinder(SparkPlan plan, Rule<SparkPlan> rule) {
    this.rule = rule;
    visit(plan);
    addRest(0, 0);
  }

  /** Finds scans that are no longer in the reused exchanges and final plans from some places on. */
  private void addRest(int firstReused, int firstFinal) {
    // An exchange that the join and its keys share may have been computed for the keys.
    for (int i = firstReused; i < reused.size(); i++) visit(reused.get(i).child());
    for (int i = firstFinal; i < finalPlans.size(); i++) addRemovedScans(finalPlans.get(i));
  }

  /** Finds what adaptive execution removed from a plan: stages that ran, and scans that did not. */
  private void addRemovedScans(AdaptiveSparkPlanExec plan) {
    for (QueryStageExec stage :
        ScalaInterop.asJava(plan.context().stageCache().values())) {
      // A stage that ran only to collect the keys of a join reads what the join reads.
      if (stage.isMaterialized() && !tablesRead.containsAll(tables(stage))) visit(stage);
    }
    addUnread(plan.initialPlan());
  }

  private void addUnread(SparkPlan plan) {
    List<Object> tables = isScan(plan) ? tables(plan) : List.of();
    if (!tables.isEmpty() && Collections.disjoint(tablesRead, tables)) {
      scans.add(ScanNotes.setUnprunedReason(plan, NOT_READ));
      tablesRead.addAll(tables);
    }
    ScalaInterop.asJava(plan.children()).forEach(this::addUnread);
  }

  /** Returns an identity for each occurrence of a table in a part of a plan. */
  private static List<Object> tables(SparkPlan plan) {
    List<Object> out = new ArrayList<>();
    for (LogicalPlan table : ScanNotes.leaves(plan)) {
      out.add(table.output().isEmpty() ? table : table.output().head().exprId());
    }
    return out;
  }

  /** Notes that a part of a plan is computed to its last row. Every row of a scan in it was read if
      no node above it may stop early, as a LIMIT does. */
  public void drain(SparkPlan plan) {
    SparkPlan below = plan;
    while (true) {
      if (below instanceof AdaptiveSparkPlanExec adaptive) {
        below = adaptive.executedPlan();
      } else if (below instanceof QueryStageExec stage) {
        below = stage.plan();
      } else if (keepsAll(CometNodes.original(below))) {
        below = below.children().head();
      } else {
        break;
      }
    }
    if (isScan(below)) drained.add(below);
  }

  private static boolean keepsAll(SparkPlan node) {
    return node instanceof FilterExec || node instanceof ProjectExec || node instanceof SortExec
        || node instanceof BaseAggregateExec || node instanceof ColumnarToRowTransition
        || node instanceof WholeStageCodegenExec || node instanceof InputAdapter;
  }

  public boolean isDrained(SparkPlan scan) {
    return drained.contains(scan);
  }

  public boolean isCached(SparkPlan scan) {
    return caches.containsKey(scan);
  }

  /** Whether a scan filled a cache in an earlier execution. */
  public boolean isFilled(SparkPlan scan) {
    return isCached(scan) && caches.get(scan).getTagValue(FILLED).isDefined();
  }

  /** Notes that the caches in the plan are filled now. */
  public void markCaches() {
    caches.values().forEach(cached -> cached.setTagValue(FILLED, true));
  }

  /** Returns the scans of the plan that the calling thread executes. */
  static List<SparkPlan> findRunning() {
    SparkPlan plan = RunningPlan.get();
    return plan == null ? List.of() : new ScanFinder(plan, null).scans();
  }

  public List<SparkPlan> scans() {
    return scans;
  }

  /** Returns the uppermost filter of a scan; null if it has none. */
  public SparkPlan filter(SparkPlan scan) {
    return filters.get(scan);
  }

  /** Returns the conditions of the uppermost filter of a scan. */
  public List<Expression> conditions(SparkPlan scan) {
    SparkPlan filter = filters.get(scan);
    return filter == null
        ? List.of()
        : Conditions.conjuncts(CometNodes.condition(filter));
  }

  private static boolean isScan(SparkPlan plan) {
    return plan instanceof FileSourceScanExec || plan instanceof BatchScanExec
        || plan instanceof MicroBatchScanExec batch && ScanSources.isOfStream(batch.stream())
        || CometNodes.scan(plan) != null;
  }

  private void visit(SparkPlan plan) {
    if (CometNodes.condition(plan) != null) addFilter(plan);
    if (plan instanceof Exchange) {
      if (!shared.add(plan)) return;
      drain(plan.children().head());
    }
    if (isScan(plan)) {
      scans.add(plan);
      tablesRead.addAll(tables(plan));
    } else if (plan instanceof AdaptiveSparkPlanExec adaptive) {
      visitAdaptive(adaptive);
    } else if (plan instanceof QueryStageExec stage) {
      // The stage of the result has the logical plan of the whole query.
      if (plan instanceof ExchangeQueryStageExec) tablesRead.addAll(tables(plan));
      if (stage.plan() instanceof ReusedExchangeExec exchange) reused.add(exchange);
      visit(stage.plan());
    } else if (plan instanceof InMemoryTableScanExec scan) {
      visitCache(scan.relation().cachedPlan());
    } else if (!(plan instanceof ReusedExchangeExec)) {
      visitAll(plan.children());
    }
    visitAll(plan.subqueries());
  }

  private void visitCache(SparkPlan cached) {
    if (!shared.add(cached)) return;
    int first = scans.size();
    int firstReused = reused.size();
    int firstFinal = finalPlans.size();
    visit(cached);
    addRest(firstReused, firstFinal);
    scans.subList(first, scans.size()).forEach(scan -> caches.put(scan, cached));
  }

  private void addFilter(SparkPlan filter) {
    SparkPlan below = filter;
    while (below instanceof UnaryExecNode node && !(below instanceof Exchange)) {
      below = node.child();
    }
    if (isScan(below)) filters.putIfAbsent(below, filter);
  }

  private void visitAdaptive(AdaptiveSparkPlanExec plan) {
    if (plan.isFinalPlan()) finalPlans.add(plan);
    boolean isPending = rule != null && !plan.isFinalPlan();
    visit(isPending ? rule.apply(plan.executedPlan()) : plan.executedPlan());
  }

  private void visitAll(scala.collection.Iterable<SparkPlan> plans) {
    ScalaInterop.asJava(plans).forEach(this::visit);
  }
}
