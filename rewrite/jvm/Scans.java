package rewrite.jvm;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.UnaryExecNode;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.datasources.FileIndex;
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
    return Json.write(new Walk(new PruneScans(skipping, false)).of(plan));
  }

  /** One object a scan, in the order of the plan from the root down. Runs no job. */
  public List describe(SparkPlan plan) {
    return new Walk(null).of(plan);
  }

  /** Adds the file scans of a plan, in the order of `describe`. */
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
        FileSourceScanExec scan = (FileSourceScanExec) found.get(i);
        Map described = scan(scan);
        if (filters.containsKey(scan)) {
          described.put("rows", new Object[] {rows(scan), rows((SparkPlan) filters.get(scan))});
        }
        out.add(described);
      }
      return out;
    }

    private void visit(SparkPlan plan) {
      if (plan instanceof FilterExec) above(plan);
      if (plan instanceof FileSourceScanExec) {
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
      if (below instanceof FileSourceScanExec && !filters.containsKey(below)) {
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

  private Map scan(FileSourceScanExec scan) {
    FileIndex location = scan.relation().location();
    Map out;
    if (location instanceof PrunedFileIndex) {
      out = ((PrunedFileIndex) location).count(scan.partitionFilters(), scan.dataFilters());
    } else {
      out = new HashMap();
      out.put("format", Sizes.of(location));
      IndexedScan read = PruneScans.read(scan.relation(), skipping);
      out.put("reason", skipping.refusal(read, PruneScans.filters(scan)));
    }
    out.put("table", name(scan));
    out.put("without keys", Reasons.of(scan));
    scala.Option opened = scan.metrics().get("numFiles");
    if (opened.isDefined()) out.put("opened", ((AccumulatorV2) opened.get()).value());
    scala.Option size = scan.metrics().get("filesSize");
    if (size.isDefined()) out.put("opened bytes", ((AccumulatorV2) size.get()).value());
    return out;
  }

  private static Object rows(SparkPlan plan) {
    return ((AccumulatorV2) plan.metrics().apply("numOutputRows")).value();
  }

  private static String name(FileSourceScanExec scan) {
    return scan.tableIdentifier().isDefined()
        ? ((org.apache.spark.sql.catalyst.TableIdentifier) scan.tableIdentifier().get())
            .unquotedString()
        : scan.relation().location().rootPaths().apply(0).toString();
  }
}
