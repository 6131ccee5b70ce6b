package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.CurrentOrigin$;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeLike;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.keys.ScanNotes;
import rewrite.jvm.predicate.AskedLeaves;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.RuntimeRowFilter;
import rewrite.jvm.predicate.ScalarSubqueries;
import rewrite.jvm.predicate.StaticKeys;
import rewrite.jvm.predicate.TopRows;
import rewrite.jvm.source.ScanSource;

/**
 * Prunes the scans of tables with an index: puts a PrunedFileIndex, or a PrunedBatchScan, behind
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
 * <p>The rule always removes the dynamic-pruning expressions of JoinPruningRule from filters:
 * without code generation, one that is left in a filter fails on executors. (In a connector's scan
 * they are runtime filters, and harmless.) With adaptive execution this rule sees a stage when it
 * is about to run, collects the keys, and turns them into plain values. Without, it sees the whole
 * plan long before, and keys are collected when files are listed.
 */
public final class FilePruningRule extends Rule<SparkPlan> {
  private static final String FAILED = "pruning it failed: ";

  private final PhysicalScans scans;
  private final boolean runs;

  /** What becomes of a scan. */
  private enum Outcome {
    /** Neither an index nor the table's statistics can prune the scan; explain has the reason. */
    NOT_ELIGIBLE,
    /** The query has no condition or key for the scan. */
    NOTHING_TO_LOOK_UP,
    /** The scan is pruned now, by the conditions and by the keys that can be collected. */
    LOOK_UP_NOW,
    /** Spark computes keys or subqueries later: the scan is pruned when its files are listed. */
    LOOK_UP_LATER
  }

  /** If not `runs`, the plan is only explained, and no key is collected. */
  public FilePruningRule(PhysicalScans scans, boolean runs) {
    this.scans = scans;
    this.runs = runs;
  }

  /** Returns the function for `injectColumnar`. Spark runs the rule before it inserts transitions
      between rows and columns. */
  public scala.Function1<SparkSession, ColumnarRule> inject() {
    ColumnarRule columnar = new Columnar(this);
    return session -> columnar;
  }

  @Override public String ruleName() {
    return "rewrite.FilePruningRule";
  }

  @Override public SparkPlan apply(SparkPlan plan) {
    try {
      scans.client().countPlan();
      return new Pass(plan).visit(plan);
    } catch (Throwable failure) {
      return removeKeys(plan, FAILED + Failures.forgive(failure));
    }
  }

  /** Returns a plan without the expressions of JoinPruningRule; its scans have the reason. */
  private SparkPlan removeKeys(SparkPlan plan, String reason) {
    if (scans.of(plan) != null) ScanNotes.setUnprunedReason(plan, reason);
    SparkPlan out = plan.mapChildren(child -> removeKeys(child, reason));
    if (!(out instanceof FilterExec filter)) return out;
    List<Expression> conditions = Conditions.conjuncts(filter.condition());
    if (!conditions.removeIf(each -> Conditions.dynamic(each) != null)) return filter;
    if (conditions.isEmpty()) return filter.child();
    FilterExec remaining = filter.copy(Conditions.conjunction(conditions), filter.child());
    remaining.copyTagsFrom(filter);
    return remaining;
  }

  private static boolean hasJoin(SparkPlan plan) {
    return plan.exists(BroadcastHashJoinExec.class::isInstance);
  }

  /** One walk over one plan: visits filters, and the scans under them, from the root down. */
  private final class Pass {
    private final SparkPlan plan;
    private final Map<SparkPlan, List<TopRows>> tops = new IdentityHashMap<>();
    /** Scans whose pruning failed. A second try, without the filter above, would hide the reason. */
    private final Set<SparkPlan> failed = Collections.newSetFromMap(new IdentityHashMap<>());

    Pass(SparkPlan plan) {
      this.plan = plan;
      addTops(CometNodes.asSpark(plan));
    }

    /** Finds the scans that an order, a min or a max needs only some rows of. */
    private void addTops(SparkPlan plan) {
      List<TopRows> some = TopRows.of(plan);
      if (!some.isEmpty()) tops.put(some.get(0).scan(), some);
      ScalaInterop.asJava(plan.children()).forEach(this::addTops);
    }

    /** Does what `transformDown` does, with `replace`. It compares nodes by identity: with `equals`,
        BatchScanExec would plan all files of a connector. */
    SparkPlan visit(SparkPlan node) {
      SparkPlan out = CurrentOrigin$.MODULE$.withOrigin(node.origin(), () -> replace(node));
      if (out != node) out.copyTagsFrom(node);
      return out.mapChildren(this::visit);
    }

    private SparkPlan replace(SparkPlan node) {
      if (node instanceof FilterExec filter) return replaceFilter(filter);
      if (CometNodes.condition(node) != null) {
        return pruneBelow(node, new ArrayList<>(), List.of());
      }
      PhysicalScan scan = scans.of(node);
      return scan == null || scan.isPruned() ? node : replaceScan(scan);
    }

    /** Prunes a scan by the conditions directly above it, and by keys: those in a filter above, and
        those that the scan has itself. */
    private SparkPlan prune(PhysicalScan scan, List<Expression> above, List<JoinKeySet> keysAbove) {
      SparkPlan node = scan.node();
      if (failed.contains(node)) return node;
      try {
        ScanSource read = scan.read();
        List<JoinKeySet> keys = new ArrayList<>(keysAbove);
        List<Expression> filters = scan.filters(above);
        List<KeyValues> staticKeys = StaticKeys.take(filters);
        if (read != null) {
          recordPredicates(node, read, filters);
          keys.addAll(scan.keys());
          if (!scan.filtersRows()) keys.forEach(JoinKeySet::keepRows);
        }
        List<TopRows> some =
            staticKeys.isEmpty() && !scan.isOfStream()
                ? findTops(node, read, filters, keys)
                : List.of();
        List<KeyValues> sets = new ArrayList<>(staticKeys);
        sets.addAll(keys);
        String refusal = some.isEmpty() ? scans.refusal(scan, read, filters, sets) : null;
        boolean hasKeys =
            sets.stream().anyMatch(set -> set.column() != null)
                || keys.stream().anyMatch(set -> !set.operands().isEmpty());
        Outcome outcome =
            refusal != null ? Outcome.NOT_ELIGIBLE
            : filters.isEmpty() && some.isEmpty() && !hasKeys ? Outcome.NOTHING_TO_LOOK_UP
            : waits(read, filters, keys) ? Outcome.LOOK_UP_LATER
            : Outcome.LOOK_UP_NOW;
        return switch (outcome) {
          case NOT_ELIGIBLE -> ScanNotes.setUnprunedReason(node, refusal);
          case NOTHING_TO_LOOK_UP -> leaveAsIs(scan, read, keys);
          case LOOK_UP_NOW, LOOK_UP_LATER -> {
            ScanPruning pruning = scans.pruning(node, read, filters, staticKeys, keys, some);
            if (runs && areDue(keys)) pruning.collect(plan, node);
            if (outcome == Outcome.LOOK_UP_NOW) pruning.lookUp();
            yield scan.prune(pruning, outcome == Outcome.LOOK_UP_LATER);
          }
        };
      } catch (Throwable failure) {
        failed.add(node);
        return ScanNotes.setUnprunedReason(node, FAILED + Failures.forgive(failure));
      }
    }

    private boolean waits(ScanSource read, List<Expression> filters, List<JoinKeySet> keys) {
      return runs && (!areDue(keys) || scans.statistics().areAwaited(read, filters));
    }

    private static boolean areDue(List<JoinKeySet> keys) {
      return keys.stream().allMatch(JoinKeySet::canCollect);
    }

    /** Returns the rows that an order, a min or a max needs of a scan, or nothing. If there are keys,
        or values are still to come, files are pruned later, and then other ones have these rows. */
    private List<TopRows> findTops(
        SparkPlan node, ScanSource read, List<Expression> filters, List<JoinKeySet> keys) {
      boolean isFinal = keys.isEmpty() && ScalarSubqueries.of(filters).isEmpty();
      List<TopRows> some =
          isFinal ? tops.getOrDefault(CometNodes.original(node), List.of()) : List.of();
      boolean canUse =
          scans.client().isOn()
              && some.stream().allMatch(top -> scans.statistics().know(read, top));
      return canUse ? some : List.of();
    }

    private void recordPredicates(SparkPlan scan, ScanSource read, List<Expression> filters) {
      if (!scans.client().isOn()) return;
      try {
        List<Map<String, Object>> leaves =
            AskedLeaves.of(filters, ScanNotes.keys(scan), read.columns());
        // A scan is visited with the filter above it, and once more alone.
        if (!leaves.isEmpty() || ScanNotes.predicates(scan) == null) {
          ScanNotes.setPredicates(scan, read.table(), leaves);
        }
      } catch (Throwable failure) {
        Failures.passOn(failure);
        // ANALYZE and SAVINGS lack one scan.
      }
    }

    /** Leaves a scan without conditions unchanged: Spark reads equal scans once. */
    private SparkPlan leaveAsIs(PhysicalScan scan, ScanSource read, List<JoinKeySet> keys) {
      keys.forEach(set -> ScanNotes.add(scan.node(), set.reason()));
      return ScanNotes.setUnprunedReason(
          scan.node(), scans.refusal(scan, read, List.of(), List.of()));
    }

    /** Removes the expressions of JoinPruningRule from a filter, and prunes the scan under it by
        their keys. */
    private SparkPlan replaceFilter(FilterExec filter) {
      List<Expression> remaining = new ArrayList<>();
      List<JoinKeySet> keys = new ArrayList<>();
      for (Expression condition : Conditions.conjuncts(filter.condition())) {
        JoinKeySet set = JoinKeySet.of(condition, scans.registry());
        if (set == null) {
          remaining.add(condition);
        } else {
          keys.add(set);
        }
      }
      SparkPlan child = pruneBelow(filter.child(), takeDeterministic(remaining), keys);
      boolean hasStaticKeys = remaining.removeIf(StaticKeys::isOne);
      if (child != filter.child()) {
        remaining.addAll(createRowFilters(child));
      } else if (keys.isEmpty() && !hasStaticKeys) {
        return filter;
      }
      return remaining.isEmpty() ? child : filter.copy(Conditions.conjunction(remaining), child);
    }

    /** Returns the conditions that a filter evaluates before a random or counting one, whose result
        would change if rows were dropped before it. */
    private static List<Expression> takeDeterministic(List<Expression> conditions) {
      int end = 0;
      while (end < conditions.size() && conditions.get(end).deterministic()) end++;
      return new ArrayList<>(conditions.subList(0, end));
    }

    /** Prunes the scan below a filter; Delta puts a filter of its own in between. `above` is null
        if no condition above applies to the scan's columns. */
    private SparkPlan pruneBelow(SparkPlan child, List<Expression> above, List<JoinKeySet> keys) {
      PhysicalScan scan = scans.of(child);
      if (scan != null) {
        // A scan with its own conditions needs of the filters above it only keys and subqueries.
        // Otherwise the scan is visited later, alone or under another filter.
        boolean hasKeys =
            !keys.isEmpty() || above != null && above.stream().anyMatch(StaticKeys::isOne);
        boolean isReady =
            above != null && (!scan.hasFilters() || !ScalarSubqueries.of(above).isEmpty())
                || scan.hasFilters() && hasKeys;
        return isReady && !scan.isPruned() ? prune(scan, above, keys) : child;
      }
      List<Expression> conditions = null;
      Expression condition = CometNodes.condition(child);
      if (condition != null) {
        if (above != null) {
          conditions = condition.deterministic() ? above : new ArrayList<>();
          conditions.addAll(takeDeterministic(Conditions.conjuncts(condition)));
        }
      } else if (!(CometNodes.original(child) instanceof ProjectExec)) {
        return child;
      } // else: a column above a projection may differ from the scan's column of that name
      SparkPlan below = child.children().head();
      SparkPlan pruned = pruneBelow(below, conditions, keys);
      return pruned == below ? child : child.withNewChildren(ScalaInterop.asScala(List.of(pruned)));
    }

    /** Prunes a scan without a filter above. */
    private SparkPlan replaceScan(PhysicalScan scan) {
      SparkPlan out = prune(scan, new ArrayList<>(), List.of());
      List<Expression> rows = out == scan.node() ? List.of() : createRowFilters(out);
      return rows.isEmpty() ? out : new FilterExec(Conditions.conjunction(rows), out);
    }

    /** Returns conditions that drop the rows of a pruned scan that have no partner before they are
        shuffled. A join in the same stage drops them itself, with the same broadcast. */
    private List<Expression> createRowFilters(SparkPlan pruned) {
      List<Expression> out = new ArrayList<>();
      if (!(plan instanceof ShuffleExchangeLike)) return out;
      for (JoinKeySet set : keysOf(pruned)) {
        if (!set.dropsRows() || set.isBroadcast() && hasJoin(plan)) continue;
        try {
          out.add(RuntimeRowFilter.rows(set.column(), set.values()));
        } catch (RuntimeException failure) {
          // The join drops them later.
        }
      }
      return out;
    }

    /** Returns the keys of a pruned scan, which may be below filters and projections. */
    private List<JoinKeySet> keysOf(SparkPlan pruned) {
      PhysicalScan scan = scans.of(pruned);
      return scan == null ? keysOf(pruned.children().head()) : scan.pruning().keys();
    }
  }

  private static final class Columnar extends ColumnarRule {
    private final Rule<SparkPlan> rule;

    Columnar(Rule<SparkPlan> rule) {
      this.rule = rule;
    }

    @Override public Rule<SparkPlan> preColumnarTransitions() {
      return rule;
    }
  }
}
