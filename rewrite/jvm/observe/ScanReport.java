package rewrite.jvm.observe;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.util.AccumulatorV2;
import rewrite.jvm.bridge.Budgets;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.Json;
import rewrite.jvm.keys.ScanNotes;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.scan.PhysicalScan;
import rewrite.jvm.scan.PhysicalScans;
import rewrite.jvm.scan.ScanFinder;
import rewrite.jvm.source.Sizes;

/** Says of every file scan of a physical plan what was skipped, or why nothing was. */
public final class ScanReport {
  private final Budgets budgets;
  private final PhysicalScans physical;
  private final Rule rule;

  /** `rule` says what would be read of a plan that has not run, and collects nothing. */
  public ScanReport(Budgets budgets, PhysicalScans physical, Rule rule) {
    this.budgets = budgets;
    this.physical = physical;
    this.rule = rule;
  }

  /** What a plan that may not have run yet would read, as JSON; asks about each scan once. */
  public String foresee(SparkPlan plan) {
    budgets.hold();
    try {
      ScanFinder finder = new ScanFinder(plan, rule);
      List out = new ArrayList();
      for (int i = 0; i < finder.scans().size(); i++) {
        SparkPlan scan = (SparkPlan) finder.scans().get(i);
        out.add(inPlan(scan(physical.of(scan), finder.filter(scan)), scan, finder));
      }
      return Json.write(out);
    } finally {
      budgets.release();
    }
  }

  /**
   * What is known of the scans of a plan that has run, one object a scan, from the root down.
   *
   * <p>Nothing is asked, listed or planned. What only a look at the table can tell, as `format`, is
   * left to be described later: there is what Sizes describes. What was asked in vain is added to
   * the questions. `isDrained`: all rows of the plan were asked for.
   */
  public List known(SparkPlan plan, boolean isDrained, UnusedPredicates questions) {
    ScanFinder finder = new ScanFinder(plan, null);
    if (isDrained) finder.drain(plan);
    List out = new ArrayList();
    for (int i = 0; i < finder.scans().size(); i++) {
      SparkPlan scan = (SparkPlan) finder.scans().get(i);
      Map known = inPlan(knownOf(physical.of(scan)), scan, finder);
      Object[] asked = ScanNotes.asked(scan);
      if (asked != null) questions.add(known, (String) asked[0], (List) asked[1]);
      out.add(known);
    }
    finder.noteFilled();
    return out;
  }

  /** Adds what the plan around a scan says of it. `counted` are those that a query reads, of what
      may have an index: the others are in no history and no sums. */
  private static Map inPlan(Map described, SparkPlan scan, ScanFinder finder) {
    boolean isFilled = finder.isFilled(scan);
    described.put("cached", Boolean.valueOf(isFilled));
    if (isFilled) described.put("counted", Boolean.FALSE);
    if (finder.isCached(scan) && IndexClient.NO_CONDITION.equals(described.get("reason"))) {
      described.put("reason", "a cached frame is filled with all of its rows");
    }
    FilterExec filter = finder.filter(scan);
    if (filter != null) described.put("rows", new Object[] {rows(scan), rows(filter)});
    described.put("drained", Boolean.valueOf(finder.isDrained(scan)));
    return described;
  }

  private Map scan(PhysicalScan scan, FilterExec filter) {
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

  private Map knownOf(PhysicalScan scan) {
    Map out;
    try {
      out = scan.isPruned() ? scan.known() : new HashMap();
      if (out == null) {
        out = new HashMap();
        out.put("reason", "the scan did not run");
      } else if (!scan.isPruned()) {
        out.put("reason", ScanNotes.unpruned(scan.node()));
      }
      addOpened(scan, out);
      out.put("format", scan.source());
    } catch (Throwable failure) {
      Failures.passOn(failure);
      out = failed(failure);
    }
    return named(scan, out);
  }

  private static void addOpened(PhysicalScan scan, Map out) throws Exception {
    Object opened = scan.opened();
    if (opened != null) out.put("opened", opened);
    Object bytes = scan.openedBytes();
    if (bytes != null) out.put("opened bytes", bytes);
  }

  private static Map failed(Throwable failure) {
    Map out = new HashMap();
    out.put("reason", "describing the scan failed: " + Failures.describe(failure));
    return out;
  }

  private static Map named(PhysicalScan scan, Map out) {
    out.put("table", scan.name());
    out.put("without keys", ScanNotes.of(scan.node()));
    out.put("counted", Boolean.valueOf(scan.isIndexable()));
    return out;
  }

  private String reason(PhysicalScan scan, FilterExec filter) {
    List above = filter == null ? new ArrayList() : Conditions.conjuncts(filter.condition());
    String refusal = physical.refusal(scan, scan.read(), scan.filters(above), new ArrayList());
    return refusal == null ? ScanNotes.unpruned(scan.node()) : refusal;
  }

  private static Object rows(SparkPlan plan) {
    return ((AccumulatorV2) plan.metrics().apply("numOutputRows")).value();
  }
}
