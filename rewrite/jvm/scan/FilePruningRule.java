package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeLike;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.keys.ScanNotes;
import rewrite.jvm.keys.TupleKeys;
import rewrite.jvm.predicate.AskedLeaves;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.RuntimeRowFilter;
import rewrite.jvm.predicate.ScalarSubqueries;
import rewrite.jvm.predicate.TopRows;
import rewrite.jvm.source.ScanSource;

/**
 * Prunes the scans whose table has an index: puts a PrunedFileIndex, or a PrunedBatchScan, behind
 * them.
 *
 * <pre>
 *   before                                   after
 *   Filter k = 7                             Filter k = 7
 *   +- FileScan Location: Delta(9 files)     +- FileScan Location: Skipping(Delta(9 files))
 *
 *   Filter k = 7 AND dynamicpruning(k IN d)  Filter k = 7
 *   +- FileScan Location: Delta(9 files)     +- FileScan Location: Skipping(k by d, Delta(9 files))
 * </pre>
 *
 * <p>Runs on physical plans as a columnar rule, the one hook that sees every scan with adaptive
 * execution on and off. A swap in the logical plan would lose Delta's deletion-vector filter, which
 * matches on the class of the file index, and deleted rows would come back.
 *
 * <p>The dynamic-pruning expressions of JoinPruningRule end here, whatever becomes of the scan: one
 * left in a filter fails on executors where Spark does not generate code. (A connector's scan has
 * them itself, as runtime filters, and there they do no harm.) With adaptive execution this rule
 * sees a stage when it is about to run: keys are collected, and become plain values. Without, it
 * sees the whole plan long before, and they are collected when files are listed.
 */
public final class FilePruningRule extends Rule {
  private static final String FAILED = "pruning it failed: ";

  private final IndexClient client;
  private final PruningFeedback feedback;
  private final PhysicalScans scans;
  private final boolean runs;

  /** `runs` false: the plan is only looked at, nothing is collected. */
  public FilePruningRule(
      IndexClient client, PruningFeedback feedback, PhysicalScans scans, boolean runs) {
    this.client = client;
    this.feedback = feedback;
    this.scans = scans;
    this.runs = runs;
  }

  public String ruleName() {
    return "rewrite.FilePruningRule";
  }

  public TreeNode apply(TreeNode plan) {
    try {
      client.planned();
      return ((SparkPlan) plan).transformDown(new Pass((SparkPlan) plan));
    } catch (Throwable failure) {
      return withoutKeys((SparkPlan) plan, FAILED + Failures.forgive(failure));
    }
  }

  /** The plan as it is, less the expressions of JoinPruningRule; its scans have the reason. */
  private SparkPlan withoutKeys(SparkPlan plan, String reason) {
    if (scans.of(plan) != null) ScanNotes.unpruned(plan, reason);
    List children = ScalaInterop.asJava(plan.children());
    boolean changed = false;
    for (int i = 0; i < children.size(); i++) {
      SparkPlan child = withoutKeys((SparkPlan) children.get(i), reason);
      changed |= child != children.get(i);
      children.set(i, child);
    }
    SparkPlan now =
        changed ? plan.withNewChildren(ScalaInterop.asScala(children)) : plan;
    return now instanceof FilterExec ? withoutKeys((FilterExec) now) : now;
  }

  private static SparkPlan withoutKeys(FilterExec filter) {
    List kept = new ArrayList();
    List conditions = Conditions.conjuncts(filter.condition());
    for (int i = 0; i < conditions.size(); i++) {
      if (Conditions.dynamic((Expression) conditions.get(i)) == null) kept.add(conditions.get(i));
    }
    if (kept.size() == conditions.size()) return filter;
    if (kept.isEmpty()) return filter.child();
    FilterExec now = filter.copy(Conditions.conjunction(kept), filter.child());
    now.copyTagsFrom(filter);
    return now;
  }

  private static boolean joins(SparkPlan plan) {
    if (plan instanceof BroadcastHashJoinExec) return true;
    List children = ScalaInterop.asJava(plan.children());
    for (int i = 0; i < children.size(); i++) {
      if (joins((SparkPlan) children.get(i))) return true;
    }
    return false;
  }

  /** One walk over one plan: visits filters, and the scans under them, from the root down. */
  private final class Pass extends scala.runtime.AbstractPartialFunction {
    private final SparkPlan plan;
    private final Map tops = new IdentityHashMap();

    Pass(SparkPlan plan) {
      this.plan = plan;
      addTops(plan);
    }

    public boolean isDefinedAt(Object node) {
      return node instanceof FilterExec || unpruned(node) != null;
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (node instanceof FilterExec) return filter((FilterExec) node);
      PhysicalScan scan = unpruned(node);
      return scan == null ? otherwise.apply(node) : alone(scan);
    }

    private PhysicalScan unpruned(Object node) {
      PhysicalScan scan = scans.of(node);
      return scan == null || scan.isPruned() ? null : scan;
    }

    /** Adds of each scan what an order wants of it. */
    private void addTops(SparkPlan plan) {
      TopRows top = TopRows.of(plan);
      if (top != null) tops.put(top.scan(), top);
      List children = ScalaInterop.asJava(plan.children());
      for (int i = 0; i < children.size(); i++) {
        addTops((SparkPlan) children.get(i));
      }
    }

    /** `above` are conditions directly above the scan, `keys` those found there; keys that the scan
        has itself are added. */
    private SparkPlan prune(PhysicalScan scan, List above, List keys) {
      try {
        ScanSource read = scan.read();
        List filters = scan.filters(above);
        if (read == null) {
          return ScanNotes.unpruned(scan.node(), scans.refusal(scan, read, filters, keys));
        }
        noteAsked(scan.node(), read, filters);
        keys.addAll(scan.keys());
        for (int i = 0; i < keys.size() && !scan.filtersRows(); i++) {
          ((JoinKeySet) keys.get(i)).keepRows();
        }
        // With keys, or values that are still to come, other files are left out later.
        boolean isWhole = keys.isEmpty() && ScalarSubqueries.of(filters).isEmpty();
        TopRows top = isWhole ? scans.known(read, (TopRows) tops.get(scan.node())) : null;
        boolean due = true;
        boolean something = !filters.isEmpty() || top != null;
        for (int i = 0; i < keys.size(); i++) {
          due &= ((JoinKeySet) keys.get(i)).isDue();
          something |= ((JoinKeySet) keys.get(i)).column() != null;
        }
        String refusal = top == null ? scans.refusal(scan, read, filters, keys) : null;
        if (refusal != null) return ScanNotes.unpruned(scan.node(), refusal);
        if (!something) return asItIs(scan, keys);
        if (runs && due) {
          scans.collect(read, keys);
          for (int i = 0; i < keys.size(); i++) {
            ((JoinKeySet) keys.get(i)).keepIfJoined(plan, scan.node());
          }
          filters.addAll(TupleKeys.conditions(keys, client.maxBytes()));
        }
        ScanPruning pruning = scans.pruning(read, filters, keys, top);
        if (runs && due) pruning.setCollected();
        boolean waits = runs && (!due || pruning.waitsForValues());
        if (!waits) pruning.ask();
        return scan.pruned(pruning, waits);
      } catch (Throwable failure) {
        keys.clear(); // they may not be those of the join: that was still to be found out
        return ScanNotes.unpruned(scan.node(), FAILED + Failures.forgive(failure));
      }
    }

    private void noteAsked(SparkPlan scan, ScanSource read, List filters) {
      if (!client.isOn()) return;
      try {
        List leaves = AskedLeaves.of(filters, ScanNotes.keys(scan), read.columns());
        // A scan is visited below its filter, and once more by itself.
        if (!leaves.isEmpty()) ScanNotes.asked(scan, read.table(), leaves);
      } catch (Throwable failure) {
        Failures.passOn(failure);
        // ANALYZE knows of one question less.
      }
    }

    /** A scan with nothing to ask: changed, it would differ from copies that Spark reads with
        it. */
    private SparkPlan asItIs(PhysicalScan scan, List keys) {
      for (int i = 0; i < keys.size(); i++) {
        ScanNotes.add(scan.node(), ((JoinKeySet) keys.get(i)).reason());
      }
      List none = new ArrayList();
      return ScanNotes.unpruned(scan.node(), scans.refusal(scan, scan.read(), none, none));
    }

    /** A filter without the expressions of JoinPruningRule, and the scan under it with their
        keys. */
    private SparkPlan filter(FilterExec filter) {
      List kept = new ArrayList();
      List keys = new ArrayList();
      List conditions = Conditions.conjuncts(filter.condition());
      for (int i = 0; i < conditions.size(); i++) {
        Expression condition = (Expression) conditions.get(i);
        JoinKeySet set = JoinKeySet.of(condition, feedback);
        if (set == null) {
          kept.add(condition);
        } else {
          keys.add(set);
        }
      }
      boolean stripped = !keys.isEmpty();
      SparkPlan child = under(filter.child(), first(kept), keys);
      if (!stripped && child == filter.child()) return filter;
      addRows(keys, kept);
      return kept.isEmpty() ? child : filter.copy(Conditions.conjunction(kept), child);
    }

    /** The conditions of a filter that are evaluated before anything random, or that counts: what
        leaves out rows before that would change it. */
    private static List first(List conditions) {
      int end = 0;
      while (end < conditions.size() && ((Expression) conditions.get(end)).deterministic()) end++;
      return new ArrayList(conditions.subList(0, end));
    }

    /** A filter's child with the keys in its scan: Delta puts a filter of its own in between. */
    private SparkPlan under(SparkPlan child, List above, List keys) {
      PhysicalScan scan = scans.of(child);
      if (scan != null) {
        // Else it is visited later, by itself or under a filter of its own.
        boolean now = scan.hasFilters() ? !keys.isEmpty() : above != null;
        return now && !scan.isPruned() ? prune(scan, above, keys) : child;
      }
      if (!(child instanceof ProjectExec) && !(child instanceof FilterExec)) return child;
      // A column above a projection need not be the scan's of that name.
      if (child instanceof ProjectExec) above = null;
      if (child instanceof FilterExec && above != null) {
        Expression condition = ((FilterExec) child).condition();
        if (!condition.deterministic()) above.clear();
        above.addAll(first(Conditions.conjuncts(condition)));
      }
      SparkPlan below = child.children().apply(0);
      SparkPlan now = under(below, above, keys);
      return now == below
          ? child
          : child.withNewChildren(ScalaInterop.asScala(Collections.singletonList(now)));
    }

    /** A scan without a filter of the query's on top. */
    private SparkPlan alone(PhysicalScan scan) {
      List keys = new ArrayList();
      List rows = new ArrayList();
      SparkPlan now = prune(scan, new ArrayList(), keys);
      if (now != scan.node()) addRows(keys, rows);
      return rows.isEmpty() ? now : new FilterExec(Conditions.conjunction(rows), now);
    }

    /** Adds what drops rows without a partner before they are shuffled. A join in the same stage
        does so by itself, with the same broadcast. */
    private void addRows(List keys, List conditions) {
      if (!(plan instanceof ShuffleExchangeLike)) return;
      for (int i = 0; i < keys.size(); i++) {
        JoinKeySet set = (JoinKeySet) keys.get(i);
        if (!set.dropsRows() || set.isBroadcast() && joins(plan)) continue;
        try {
          conditions.add(RuntimeRowFilter.rows(set.column(), set.values()));
        } catch (RuntimeException failure) {
          // The join drops them later.
        }
      }
    }
  }

  /** What `injectColumnar` takes: gives each session the rule. */
  public static final class Inject extends scala.runtime.AbstractFunction1 {
    private final ColumnarRule columnar;

    public Inject(FilePruningRule rule) {
      columnar = new Columnar(rule);
    }

    public Object apply(Object session) {
      return columnar;
    }
  }

  /** The rule in the form that Spark runs before it inserts row-to-column transitions. */
  private static final class Columnar extends ColumnarRule {
    private final Rule rule;

    Columnar(Rule rule) {
      super();
      this.rule = rule;
    }

    public Rule preColumnarTransitions() {
      return rule;
    }
  }
}
