package rewrite.jvm.observe;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.util.AccumulatorV2;
import rewrite.jvm.bridge.Budgets;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.Json;
import rewrite.jvm.keys.ScanNotes;
import rewrite.jvm.scan.PhysicalScan;
import rewrite.jvm.scan.PhysicalScans;
import rewrite.jvm.scan.ScanFinder;
import rewrite.jvm.source.Sizes;

/** Describes for each file scan of a physical plan what was skipped, or why nothing was. `rule`
    prunes a plan that has not run, and collects nothing. */
public record ScanReport(Budgets budgets, PhysicalScans physical, Rule<SparkPlan> rule) {
  /** Returns what a plan that may not have run yet would read, as JSON; one lookup for each scan. */
  public String foresee(SparkPlan plan) {
    budgets.hold();
    try {
      ScanFinder finder = new ScanFinder(plan, rule);
      List<Map<String, Object>> out = new ArrayList<>();
      for (SparkPlan each : finder.scans()) {
        PhysicalScan scan = physical.of(each);
        List<Expression> filters = finder.conditions(scan.node());
        out.add(
            describe(
                scan, finder,
                () -> scan.isPruned() ? scan.count() : reason(findReason(scan, filters)),
                () -> Sizes.of(scan.source())));
      }
      return Json.write(out);
    } finally {
      budgets.release();
    }
  }

  /**
   * Returns what is known of the scans of a plan that has run, one object a scan, from the root down.
   *
   * <p>Nothing is looked up, listed or planned. `format`, which needs a look at the table, holds what
   * Sizes can describe later. Scans of tables that may have an index are added to `ran`, with their
   * predicates. `isDrained`: all rows of the plan were read.
   */
  public List<Map<String, Object>> summarize(
      SparkPlan plan, boolean isDrained, List<Workload.Scan> ran) {
    ScanFinder finder = new ScanFinder(plan, null);
    if (isDrained) finder.drain(plan);
    List<Map<String, Object>> out = new ArrayList<>();
    for (SparkPlan each : finder.scans()) {
      PhysicalScan scan = physical.of(each);
      Map<String, Object> known = describe(scan, finder, () -> findCounts(scan), scan::source);
      ScanNotes.Predicates predicates = ScanNotes.predicates(scan.node());
      boolean isCounted = predicates != null && Boolean.TRUE.equals(known.get("counted"));
      if (isCounted) ran.add(new Workload.Scan(known, predicates));
      out.add(known);
    }
    finder.markCaches();
    return out;
  }

  private static Map<String, Object> findCounts(PhysicalScan scan) {
    if (!scan.isPruned()) return reason(ScanNotes.unprunedReason(scan.node()));
    Map<String, Object> known = scan.counts();
    return known == null ? reason("the scan did not run") : known;
  }

  /** Describes a scan. `counted` are those that a query reads and that may have an index: the others
      are in no history and no sums. */
  private static Map<String, Object> describe(
      PhysicalScan scan, ScanFinder finder, Callable<Map<String, Object>> counts,
      Callable<Object> format) {
    Map<String, Object> out;
    try {
      out = counts.call();
      putValue(out, "opened", scan.countOpened());
      putValue(out, "opened bytes", scan.sumOpenedBytes());
      out.put("format", format.call());
    } catch (Throwable failure) {
      Failures.passOn(failure);
      out = reason("describing the scan failed: " + Failures.describe(failure));
    }
    SparkPlan node = scan.node();
    boolean isFilled = finder.isFilled(node);
    out.put("table", scan.name());
    out.put("without keys", ScanNotes.of(node));
    out.put("counted", scan.isIndexable() && !isFilled);
    out.put("cached", isFilled);
    if (finder.isCached(node) && IndexClient.NO_CONDITION.equals(out.get("reason"))) {
      out.put("reason", "a cached frame is filled with all of its rows");
    }
    SparkPlan filter = finder.filter(node);
    if (filter != null) out.put("rows", new Object[] {rows(node), rows(filter)});
    out.put("drained", finder.isDrained(node));
    return out;
  }

  private static void putValue(Map<String, Object> out, String name, Object value) {
    if (value != null) out.put(name, value);
  }

  private static Map<String, Object> reason(String reason) {
    Map<String, Object> out = new HashMap<>();
    out.put("reason", reason);
    return out;
  }

  private String findReason(PhysicalScan scan, List<Expression> above) {
    String refusal = physical.refusal(scan, scan.read(), scan.filters(above), List.of());
    return refusal == null ? ScanNotes.unprunedReason(scan.node()) : refusal;
  }

  private static Object rows(SparkPlan plan) {
    // Comet has another name for it.
    String name = plan.metrics().contains("numOutputRows") ? "numOutputRows" : "output_rows";
    AccumulatorV2<?, ?> rows = plan.metrics().apply(name);
    return rows.value();
  }
}
