package rewrite.jvm;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeLike;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;

/**
 * Puts a PrunedFileIndex behind the scans whose table has an index.
 *
 * <p>Runs on physical plans as a columnar rule, the one hook that sees every scan with adaptive
 * execution on and off. A swap in the logical plan would lose Delta's deletion-vector filter, which
 * matches on the class of the file index, and deleted rows would come back.
 *
 * <p>The dynamic-pruning expressions of JoinKeys end here, whatever becomes of the scan: one left
 * in a filter fails on executors where Spark does not generate code. With adaptive execution this
 * rule sees a stage when it is about to run: keys are collected, and become plain values. Without,
 * it sees the whole plan long before, and the file index collects them when files are listed.
 */
public final class PruneScans extends Rule {
  private final Skipping skipping;
  private final boolean runs;

  public PruneScans(Skipping skipping) {
    this(skipping, true);
  }

  /** `runs` false: the plan is only looked at, nothing is collected. */
  PruneScans(Skipping skipping, boolean runs) {
    this.skipping = skipping;
    this.runs = runs;
  }

  public String ruleName() {
    return "rewrite.PruneScans";
  }

  public TreeNode apply(TreeNode plan) {
    skipping.planned();
    return ((SparkPlan) plan).transformDown(new Replace((SparkPlan) plan));
  }

  /** The read behind a scan, or null where it is not one that may be pruned. */
  public static IndexedScan read(HadoopFsRelation relation, Skipping skipping) {
    // By name first: DeltaScan does not load in a session without Delta.
    return relation.location().getClass().getSimpleName().equals("PreparedDeltaFileIndex")
        ? (IndexedScan) DeltaScan.of(relation.location())
        : (IndexedScan) ParquetScan.of(relation, skipping);
  }

  /** The conditions above a scan that Spark handed to it. */
  public static List filters(FileSourceScanExec scan) {
    List filters = Scala.list(scan.partitionFilters());
    filters.addAll(Scala.list(scan.dataFilters()));
    for (java.util.Iterator each = filters.iterator(); each.hasNext(); ) {
      if (each.next() instanceof DynamicPruningExpression) each.remove(); // Spark's own
    }
    return filters;
  }

  private SparkPlan prune(FileSourceScanExec scan, List keys) {
    try {
      IndexedScan read = read(scan.relation(), skipping);
      if (read == null || scan.stream().isDefined()) return scan;
      List filters = filters(scan);
      boolean due = true;
      for (int i = 0; i < keys.size(); i++) {
        due &= ((KeySet) keys.get(i)).isDue();
      }
      if (skipping.refusal(read, keys.isEmpty() ? filters : keys) != null) return scan;
      if (runs && due) {
        KeySet.collect(keys, skipping);
        filters.addAll(Tuples.conditions(keys));
      }
      PrunedFileIndex location =
          new PrunedFileIndex(scan.relation().location(), skipping, read, filters, keys);
      if (due || !runs) location.ask();
      return withFilters(scan, location, runs && !due ? awaited(keys) : ranges(keys));
    } catch (Unanswered strict) {
      throw strict;
    } catch (Throwable failure) {
      return scan;
    }
  }

  /** What Spark is to wait for before it lists the files. Only broadcasts: should reading a
      dimension again fail, the query must not. */
  private static List awaited(List keys) {
    List out = new ArrayList();
    for (int i = 0; i < keys.size(); i++) {
      KeySet set = (KeySet) keys.get(i);
      if (set.isBroadcast()) out.add(new DynamicPruningExpression(set.expression()));
    }
    return out;
  }

  /** What the reader is to skip row groups and pages by. */
  private List ranges(List keys) {
    List out = new ArrayList();
    for (int i = 0; i < keys.size() && skipping.filtersRows(); i++) {
      KeySet set = (KeySet) keys.get(i);
      Expression range =
          set.values() == null ? null : RowFilter.reader(set.column(), set.values());
      if (range != null) out.add(range);
    }
    return out;
  }

  /** A filter without the expressions of JoinKeys, and the scan under it with their keys. */
  private SparkPlan filter(FilterExec filter, SparkPlan plan) {
    List kept = new ArrayList();
    List keys = new ArrayList();
    List conditions = Filters.conjuncts(filter.condition());
    for (int i = 0; i < conditions.size(); i++) {
      Expression condition = (Expression) conditions.get(i);
      if (condition instanceof DynamicPruningExpression) {
        keys.add(KeySet.of(((DynamicPruningExpression) condition).child(), skipping.history()));
      } else {
        kept.add(condition);
      }
    }
    if (keys.isEmpty()) return filter;
    SparkPlan child = under(filter.child(), keys);
    if (skipping.filtersRows()) addRows(keys, plan, kept);
    if (kept.isEmpty()) return child;
    Expression all = (Expression) kept.get(0);
    for (int i = 1; i < kept.size(); i++) {
      all = new And(all, (Expression) kept.get(i));
    }
    return filter.copy(all, child);
  }

  /** A filter's child with the keys in its scan: Delta puts a filter of its own in between. */
  private SparkPlan under(SparkPlan child, List keys) {
    if (child instanceof FileSourceScanExec) return prune((FileSourceScanExec) child, keys);
    if (!(child instanceof ProjectExec) && !(child instanceof FilterExec)) return child;
    SparkPlan below = (SparkPlan) child.children().apply(0);
    SparkPlan now = under(below, keys);
    return now == below
        ? child
        : (SparkPlan) child.withNewChildren(Scala.seq(Collections.singletonList(now)));
  }

  /** Adds what drops rows without a partner before they are shuffled. A join in the same stage does
      so by itself, with the same broadcast. */
  private static void addRows(List keys, SparkPlan plan, List conditions) {
    if (!(plan instanceof ShuffleExchangeLike)) return;
    for (int i = 0; i < keys.size(); i++) {
      KeySet set = (KeySet) keys.get(i);
      if (set.values() == null || set.isBroadcast() && joins(plan)) continue;
      try {
        conditions.add(RowFilter.rows(set.column(), set.values()));
      } catch (RuntimeException failure) {
        // The join drops them later.
      }
    }
  }

  private static boolean joins(SparkPlan plan) {
    if (plan instanceof BroadcastHashJoinExec) return true;
    List children = Scala.list(plan.children());
    for (int i = 0; i < children.size(); i++) {
      if (joins((SparkPlan) children.get(i))) return true;
    }
    return false;
  }

  private static FileSourceScanExec withFilters(
      FileSourceScanExec scan, FileIndex location, List more) {
    HadoopFsRelation old = scan.relation();
    HadoopFsRelation relation = old.copy(
        location, old.partitionSchema(), old.dataSchema(), old.bucketSpec(), old.fileFormat(),
        old.options(), old.sparkSession());
    List filters = Scala.list(scan.dataFilters());
    filters.addAll(more);
    FileSourceScanExec now = scan.copy(
        relation, scan.stream(), scan.output(), scan.requiredSchema(), scan.partitionFilters(),
        scan.optionalBucketSet(), scan.optionalNumCoalescedBuckets(), Scala.seq(filters),
        scan.tableIdentifier(), scan.disableBucketedScan());
    now.copyTagsFrom(scan);
    return now;
  }

  /** Visits filters, and the scans under them, from the root down. */
  private final class Replace extends scala.runtime.AbstractPartialFunction {
    private final SparkPlan plan;

    Replace(SparkPlan plan) {
      this.plan = plan;
    }

    public boolean isDefinedAt(Object node) {
      return node instanceof FilterExec || isUnpruned(node);
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (node instanceof FilterExec) return filter((FilterExec) node, plan);
      return isUnpruned(node)
          ? prune((FileSourceScanExec) node, new ArrayList())
          : otherwise.apply(node);
    }

    private boolean isUnpruned(Object node) {
      return node instanceof FileSourceScanExec
          && !(((FileSourceScanExec) node).relation().location() instanceof PrunedFileIndex);
    }
  }

  /** What `injectColumnar` takes: gives each session the rule. */
  public static final class Inject extends scala.runtime.AbstractFunction1 {
    private final Skipping skipping;

    public Inject(Skipping skipping) {
      this.skipping = skipping;
    }

    public Object apply(Object session) {
      return new Columnar(new PruneScans(skipping));
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
