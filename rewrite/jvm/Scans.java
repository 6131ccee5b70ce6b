package rewrite.jvm;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.UnaryExecNode;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.util.AccumulatorV2;

/** Says of every file scan of a physical plan what was skipped, or why nothing was. */
public final class Scans {
  private final Skipping skipping;

  public Scans(Skipping skipping) {
    this.skipping = skipping;
  }

  /** What a plan that may not have run yet would read, as JSON; asks about each scan once. */
  public String foresee(SparkPlan plan) {
    skipping.budgets().hold();
    try {
      return Json.write(new Walk(new PruneScans(skipping, false)).of(plan));
    } finally {
      skipping.budgets().release();
    }
  }

  /**
   * What is known of the scans of a plan that has run, one object a scan, from the root down.
   *
   * <p>Nothing is asked, listed or planned. What only a look at the table can tell, as `format`, is
   * left to be described later: there is what Sizes describes.
   */
  public List known(SparkPlan plan) {
    return new Walk(null).known(plan);
  }

  /** Adds the file scans of a plan, in the order of `known`. */
  public void find(SparkPlan plan, List scans) {
    Walk walk = new Walk(null);
    walk.visit(plan);
    scans.addAll(walk.found);
  }

  /** Visits a plan and all below it. */
  private final class Walk {
    private final PruneScans rule;
    private final List found = new ArrayList();
    private final Map filters = new IdentityHashMap();

    /** `rule` is applied where adaptive execution will do so later; null: what was done stands. */
    Walk(PruneScans rule) {
      this.rule = rule;
    }

    List of(SparkPlan plan) {
      visit(plan);
      List out = new ArrayList();
      for (int i = 0; i < found.size(); i++) {
        SparkPlan scan = (SparkPlan) found.get(i);
        Map described = scan(PlannedScan.of(scan, skipping), (FilterExec) filters.get(scan));
        addRows(scan, described);
        out.add(described);
      }
      return out;
    }

    List known(SparkPlan plan) {
      visit(plan);
      List out = new ArrayList();
      for (int i = 0; i < found.size(); i++) {
        SparkPlan scan = (SparkPlan) found.get(i);
        Map described = knownOf(PlannedScan.of(scan, skipping));
        addRows(scan, described);
        out.add(described);
      }
      return out;
    }

    private void addRows(SparkPlan scan, Map described) {
      if (!filters.containsKey(scan)) return;
      described.put("rows", new Object[] {rows(scan), rows((SparkPlan) filters.get(scan))});
    }

    private void visit(SparkPlan plan) {
      if (plan instanceof FilterExec) above(plan);
      if (isScan(plan)) {
        found.add(plan);
      } else if (plan instanceof AdaptiveSparkPlanExec) {
        adaptive((AdaptiveSparkPlanExec) plan);
      } else if (plan instanceof QueryStageExec) {
        visit(((QueryStageExec) plan).plan());
      } else if (plan instanceof InMemoryTableScanExec) {
        visit(((InMemoryTableScanExec) plan).relation().cachedPlan());
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
      if (isScan(below) && !filters.containsKey(below)) {
        filters.put(below, filter);
      }
    }

    private void adaptive(AdaptiveSparkPlanExec plan) {
      boolean later = rule != null && !plan.isFinalPlan();
      visit(later ? (SparkPlan) rule.apply(plan.executedPlan()) : plan.executedPlan());
    }

    private void all(scala.collection.Iterable plans) {
      List list = Scala.list(plans);
      for (int i = 0; i < list.size(); i++) {
        visit((SparkPlan) list.get(i));
      }
    }
  }

  private boolean isScan(SparkPlan plan) {
    return PlannedScan.of(plan, skipping) != null;
  }

  private Map scan(PlannedScan scan, FilterExec filter) {
    Map out;
    try {
      out = scan.isPruned() ? scan.count() : new HashMap();
      if (!scan.isPruned()) out.put("reason", reason(scan, filter));
      addOpened(scan, out);
      out.put("format", Sizes.of(scan.source()));
    } catch (Throwable failure) {
      Failures.passOn(failure);
      out = failed(failure);
    }
    return named(scan, out);
  }

  private Map knownOf(PlannedScan scan) {
    Map out;
    try {
      out = scan.isPruned() ? scan.known() : new HashMap();
      if (out == null) {
        out = new HashMap();
        out.put("reason", "the scan did not run");
      } else if (!scan.isPruned()) {
        out.put("reason", Reasons.unpruned(scan.node()));
      }
      addOpened(scan, out);
      out.put("format", scan.source());
    } catch (Throwable failure) {
      Failures.passOn(failure);
      out = failed(failure);
    }
    return named(scan, out);
  }

  private static void addOpened(PlannedScan scan, Map out) throws Exception {
    Object opened = scan.opened();
    if (opened != null) out.put("opened", opened);
    Object bytes = scan.openedBytes();
    if (bytes != null) out.put("opened bytes", bytes);
  }

  private static Map failed(Throwable failure) {
    Map out = new HashMap();
    out.put("reason", "describing the scan failed: " + failure.getClass().getSimpleName());
    return out;
  }

  private static Map named(PlannedScan scan, Map out) {
    out.put("table", scan.name());
    out.put("without keys", Reasons.of(scan.node()));
    return out;
  }

  private String reason(PlannedScan scan, FilterExec filter) {
    List above = filter == null ? new ArrayList() : Filters.conjuncts(filter.condition());
    return skipping.refusal(scan.read(), scan.filters(above));
  }

  private static Object rows(SparkPlan plan) {
    return ((AccumulatorV2) plan.metrics().apply("numOutputRows")).value();
  }
}
