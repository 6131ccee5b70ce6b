package rewrite.jvm;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.util.AccumulatorV2;

/** Says of every file scan of a physical plan what was skipped, or why nothing was. */
public final class Scans {
  private final Skipping skipping;

  public Scans(Skipping skipping) {
    this.skipping = skipping;
  }

  /** `describe` as JSON. */
  public String json(SparkPlan plan) {
    return Json.write(describe(plan));
  }

  /** One object a scan, in the order of the plan from the root down. Runs no job. */
  public List describe(SparkPlan plan) {
    List out = new ArrayList();
    walk(plan, out);
    return out;
  }

  private void walk(SparkPlan plan, List out) {
    if (plan instanceof FileSourceScanExec) {
      out.add(scan((FileSourceScanExec) plan));
    } else if (plan instanceof AdaptiveSparkPlanExec) {
      walk(((AdaptiveSparkPlanExec) plan).executedPlan(), out);
    } else if (plan instanceof QueryStageExec) {
      walk(((QueryStageExec) plan).plan(), out);
    } else if (plan instanceof InMemoryTableScanExec) {
      walk(((InMemoryTableScanExec) plan).relation().cachedPlan(), out);
    } else if (!(plan instanceof ReusedExchangeExec)) {
      all(plan.children(), out);
    }
    all(plan.subqueries(), out);
  }

  private void all(scala.collection.Iterable plans, List out) {
    List list = Scala.list(plans);
    for (int i = 0; i < list.size(); i++) {
      walk((SparkPlan) list.get(i), out);
    }
  }

  private Map scan(FileSourceScanExec scan) {
    FileIndex location = scan.relation().location();
    Map out;
    if (location instanceof PrunedFileIndex) {
      out = ((PrunedFileIndex) location).count(scan.partitionFilters(), scan.dataFilters());
    } else {
      out = new HashMap();
      out.put("reason", skipping.refusal(PruneScans.read(scan), PruneScans.filters(scan)));
    }
    out.put("table", name(scan));
    scala.Option opened = scan.metrics().get("numFiles");
    if (opened.isDefined()) out.put("opened", ((AccumulatorV2) opened.get()).value());
    return out;
  }

  private static String name(FileSourceScanExec scan) {
    return scan.tableIdentifier().isDefined()
        ? ((org.apache.spark.sql.catalyst.TableIdentifier) scan.tableIdentifier().get())
            .unquotedString()
        : scan.relation().location().rootPaths().apply(0).toString();
  }
}
