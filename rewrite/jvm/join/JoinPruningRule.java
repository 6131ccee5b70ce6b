package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.ExperimentalMethods;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.planning.ExtractSingleColumnNullAwareAntiJoin$;
import org.apache.spark.sql.catalyst.plans.FullOuter$;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.RightOuter$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RowLevelWrite;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.command.RunnableCommand;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.keys.PruningRegistry;
import rewrite.jvm.keys.ScanNotes;
import rewrite.jvm.predicate.PlanSubqueries;
import rewrite.jvm.predicate.UnmatchedClauses;
import rewrite.jvm.source.ScanSources;
import rewrite.jvm.source.TableStatistics;

/**
 * Finds joins with a filtering side, whose keys tell which rows of the pruning side have a partner,
 * and puts Spark's own dynamic pruning expression on the scan of the pruning side.
 *
 * <pre>
 *   before                          after
 *   Join Inner, f.k = d.k           Join Inner, f.k = d.k
 *   :- Relation f                   :- Filter dynamicpruning(f.k IN keys of d)
 *   +- Filter d.name = 'x'          :  +- Relation f
 *      +- Relation d                +- Filter d.name = 'x'
 *                                      +- Relation d
 * </pre>
 *
 * <p>The pruning side must be one that may lose rows without a partner:
 *
 * <pre>
 *   join                      left         right
 *   INNER                     yes          yes
 *   LEFT SEMI (IN, EXISTS)    yes          yes
 *   LEFT OUTER                preserved    yes
 *   RIGHT OUTER               yes          preserved
 *   FULL OUTER                preserved    preserved
 *   LEFT ANTI (NOT EXISTS)    preserved    yes
 *   NOT IN                    never        never
 * </pre>
 *
 * Runs after all of Spark's own rules, when filters are directly above the scans. FilePruningRule
 * removes the expressions from the physical plan; without it they must not be added.
 */
public final class JoinPruningRule extends Rule<LogicalPlan> {
  private final PruningContext context;

  public JoinPruningRule(
      IndexClient client, PruningRegistry registry, PruningFeedback feedback,
      TableStatistics statistics) {
    this.context = new PruningContext(client, registry, feedback, statistics);
  }

  @Override public String ruleName() {
    return "rewrite.JoinPruningRule";
  }

  @Override public LogicalPlan apply(LogicalPlan plan) {
    try {
      if (plan instanceof RunnableCommand) {
        context.registry().register(ScanSources.unmatchedClauses(plan));
      }
      if (isIncomplete(plan)) return plan;
      if (hasState(plan, true)) {
        if (plan.exists(Join.class::isInstance)) noteState(plan);
        return plan;
      }
      boolean isStatic = context.client().isOn() && SkippingConf.usesStaticKeys();
      LogicalPlan known = isStatic ? new StaticJoins(context).add(plan) : plan;
      if (!context.client().collectsKeys()) return known;
      return new Pass(new ReuseAnalysis(known, context.registry())).visit(known);
    } catch (Throwable failure) {
      String reason = "looking for them failed: " + Failures.forgive(failure);
      ScalaInterop.asJava(plan.collectLeaves()).forEach(leaf -> ScanNotes.add(leaf, reason));
      return plan;
    }
  }

  /** Whether a plan is that of a correlated subquery. Spark cannot plan its outer references alone,
      and calls the rule again when it has joined it with the outer query. */
  private static boolean isIncomplete(LogicalPlan plan) {
    return plan instanceof Subquery subquery && subquery.correlated();
  }

  /** Whether a batch of a stream passes an operator that does not read each row alone. State must
      not be touched, and its rows are not those of the batch. */
  private static boolean hasState(LogicalPlan plan, boolean isRoot) {
    if (!plan.isStreaming()) return false;
    List<LogicalPlan> children = ScalaInterop.asJava(plan.children());
    boolean isByRow =
        children.isEmpty() || plan instanceof Project || plan instanceof Filter
            || plan instanceof Union
            || plan instanceof Join && !children.stream().allMatch(LogicalPlan::isStreaming)
            || isRoot && plan.getClass().getSimpleName().startsWith("WriteTo");
    return !isByRow || children.stream().anyMatch(child -> hasState(child, false));
  }

  private static void noteState(LogicalPlan plan) {
    ScalaInterop.asJava(plan.collectLeaves())
        .forEach(leaf -> ScanNotes.add(leaf, "the stream has state, a watermark or an observation"));
  }

  /** Whether a command reads only the rows of its table that it changes. A command that replaces
      files needs all their rows. */
  private static boolean findsRows(RowLevelWrite command) {
    return command instanceof WriteDelta && SkippingConf.isDmlEnabled();
  }

  /** Whether a rule is this one: sessions are cloned with their rules. */
  private boolean isSame(Rule<LogicalPlan> other) {
    return other instanceof JoinPruningRule rule && rule.context.client() == context.client();
  }

  /** One walk over one plan, from the root down. */
  private final class Pass {
    /** Plans that keys come from: if their scans were pruned by keys, they would wait in turn. */
    private final Set<LogicalPlan> filteringPlans =
        Collections.newSetFromMap(new IdentityHashMap<>());
    /** Existence joins whose keys are on scans together with the other operands of an OR. */
    private final Set<JoinType> united = new HashSet<>();
    /** The clauses of a MERGE that writes changes, by the join of its table and source. */
    private final Map<LogicalPlan, UnmatchedClauses> clauses = new IdentityHashMap<>();
    private final ReuseAnalysis copies;

    Pass(ReuseAnalysis copies) {
      this.copies = copies;
    }

    LogicalPlan visit(LogicalPlan plan) {
      // Spark analyzes the steps, too, and accepts no dynamic filter there.
      if (ScanSources.isRecursion(plan)) return plan;
      if (plan instanceof RowLevelWrite command && !findsRows(command)) return plan;
      if (plan instanceof MergeRows merge) addClauses(merge);
      LogicalPlan now = PlanSubqueries.transform(plan, this::visit);
      if (now instanceof Join join) now = prune(join, clauses.get(plan));
      if (now instanceof Filter filter) now = prune(filter);
      if (now instanceof Filter filter && ScanSources.isScan(filter.child())) {
        now = TupleFilters.add(filter, context);
      }
      return now.mapChildren(child -> filteringPlans.contains(child) ? child : visit(child));
    }

    private void addClauses(MergeRows merge) {
      LogicalPlan join = merge.child();
      while (join instanceof Project) join = join.children().head();
      List<Expression> conditions =
          ScalaInterop.asJava(merge.notMatchedBySourceInstructions()).stream()
              .map(MergeRows.Instruction::condition)
              .toList();
      clauses.put(join, new UnmatchedClauses(List.of(), conditions));
    }

    /** `clauses` are those of a MERGE that has the join, or null. */
    private LogicalPlan prune(Join join, UnmatchedClauses clauses) {
      EquiKeys keys = EquiKeys.of(join);
      if (keys.isEmpty()) noteNotIn(join);
      // The larger side first: the smaller one is the filtering side.
      boolean isLeft = PlanSize.bytes(join.left()).compareTo(PlanSize.bytes(join.right())) >= 0;
      List<Boolean> sides = List.of(isLeft, !isLeft);
      List<Expression> postponed = new ArrayList<>();
      for (boolean each : sides) {
        Join pruned = pruneSide(join, keys, each, clauses, postponed);
        if (pruned != null) return pruned;
      }
      for (boolean each : postponed.isEmpty() ? List.<Boolean>of() : sides) {
        Join pruned = pruneSide(join, keys, each, clauses, null);
        if (pruned != null) return pruned;
      }
      // Spark takes the size of given rows for infinite: then the other side is the pruning side.
      if (!noteReasons(join, keys, isLeft)) noteReasons(join, keys, !isLeft);
      return join;
    }

    /** Put the keys of conditions with OR on the scans below a filter. */
    private Filter prune(Filter filter) {
      LogicalPlan child = filter.child();
      for (OrKeys.UnitedKeys found : OrKeys.of(filter)) {
        FilteringSide side = found.candidate().side();
        Expression key = found.candidate().pruningKey();
        KeyPushdown pushdown = pushdown(child);
        String reason = new SideCost(side).rejectReason(PlanSize.bytes(child));
        if (reason != null) {
          pushdown.note(child, key, reason);
          continue;
        }
        KeyPushdown.Result result = pushdown.push(child, key, side, false);
        child = result.plan();
        if (!result.filteringPlans().isEmpty()) united.addAll(found.joins());
        filteringPlans.addAll(result.filteringPlans());
      }
      return child == filter.child() ? filter : filter.copy(filter.condition(), child);
    }

    /** Return the columns of one side that must equal a key of the other side. */
    private static List<Candidate> findEqual(Join join, EquiKeys keys, boolean isLeft) {
      List<Candidate> out = new ArrayList<>();
      List<Expression> own = keys.of(isLeft);
      Object identity = new Object();
      for (int i = 0; i < own.size(); i++) {
        if (own.get(i) instanceof IsNull) continue; // the other half of `<=>`
        FilteringSide side =
            new FilteringSide(
                isLeft ? join.right() : join.left(), new JoinKeys.EqualKeys(keys.of(!isLeft), i),
                PlanSize.isHinted(join, !isLeft), identity, own.size());
        out.add(new Candidate(own.get(i), side));
      }
      return out;
    }

    private void noteNotIn(Join join) {
      var keys = ExtractSingleColumnNullAwareAntiJoin$.MODULE$.unapply(join);
      if (keys.isEmpty()) return;
      pushdown(join.left())
          .note(join.left(), keys.get()._1().head(), "NOT IN keeps rows without a partner");
    }

    /** Note on one side of a join why the other side does not provide keys; whether there is a scan
        for the note. */
    private boolean noteReasons(Join join, EquiKeys keys, boolean isLeft) {
      LogicalPlan plan = isLeft ? join.left() : join.right();
      boolean isNoted = false;
      for (Candidate candidate : findEqual(join, keys, isLeft)) {
        String reason = new SideCost(candidate.side()).rejectReason(PlanSize.bytes(plan));
        if (reason != null) isNoted |= pushdown(plan).note(plan, candidate.pruningKey(), reason);
      }
      return isNoted;
    }

    private KeyPushdown pushdown(LogicalPlan pruningSide) {
      return pushdown(pruningSide, List.of(), null);
    }

    private KeyPushdown pushdown(
        LogicalPlan pruningSide, List<Expression> alsoNeeded, List<Expression> postponed) {
      return new KeyPushdown(context, copies, pruningSide, alsoNeeded, postponed);
    }

    /** Return the conditions under which a MERGE changes rows of a side that the join keeps without a
        match; nothing if it may change any row, or it is no side that a MERGE changes. */
    private List<Expression> findConditions(
        UnmatchedClauses known, JoinType type, LogicalPlan plan, boolean isLeft) {
      LogicalPlan scan = plan.collectLeaves().head();
      UnmatchedClauses found = null;
      if (known != null) {
        boolean isTarget = isLeft && (type == LeftOuter$.MODULE$ || type == FullOuter$.MODULE$);
        boolean isKnown =
            isTarget && KeyPushdown.isOfCommand(plan)
                && known.conditions().stream()
                    .allMatch(each -> each.references().subsetOf(scan.outputSet()));
        found = isKnown ? known : null;
      } else if (!isLeft && type == RightOuter$.MODULE$ && KeyPushdown.looksForFiles(plan)) {
        found = context.registry().findClauses(scan);
      }
      if (found == null) return List.of();
      if (!found.changeAll()) return found.conditions();
      ScanNotes.add(scan, "WHEN NOT MATCHED BY SOURCE may change any row");
      return List.of();
    }

    /** Return the join with keys on the scans of one side; null if there are no keys. For `postponed`
        see KeyPushdown. */
    private Join pruneSide(
        Join join, EquiKeys keys, boolean isLeft, UnmatchedClauses clauses,
        List<Expression> postponed) {
      JoinType type = join.joinType();
      LogicalPlan plan = isLeft ? join.left() : join.right();
      List<Candidate> candidates = findEqual(join, keys, isLeft);
      List<Expression> alsoNeeded = findConditions(clauses, type, plan, isLeft);
      candidates.addAll(RangeJoins.of(join, isLeft));
      candidates.addAll(OrJoins.of(join, isLeft));
      boolean isPruned = false;
      for (Candidate candidate : candidates) {
        Expression key = candidate.pruningKey();
        FilteringSide side = candidate.side();
        if (new SideCost(side).rejectReason(PlanSize.bytes(plan)) != null) continue;
        if (JoinTypes.keepsPartnerless(type)) side = side.requireExactRows();
        KeyPushdown pushdown = pushdown(plan, alsoNeeded, postponed);
        if (!alsoNeeded.isEmpty() || JoinTypes.canLose(type, isLeft)) {
          // In a MERGE that only inserts, a command looks for rows, but the table has no mark.
          KeyPushdown.Result result = pushdown.push(plan, key, side, type == LeftAnti$.MODULE$);
          plan = result.plan();
          isPruned |= !result.filteringPlans().isEmpty();
          filteringPlans.addAll(result.filteringPlans());
        } else if (!united.contains(type)) {
          pushdown.note(plan, key, JoinTypes.name(type) + " keeps rows without a partner");
        }
      }
      if (!isPruned) return null;
      return join.copy(
          isLeft ? plan : join.left(), isLeft ? join.right() : plan, type, join.condition(),
          join.hint());
    }
  }

  /**
   * Adds the rule to the optimizer rules of each session, after another one, through
   * `injectResolutionRule`.
   *
   * <p>Only `extraOptimizations` run late enough. Spark calls the builder once for every session,
   * `newSession()` included, on its first analysis.
   */
  public static final class Inject
      extends scala.runtime.AbstractFunction1<SparkSession, Rule<LogicalPlan>> {
    private final Rule<LogicalPlan> first;
    private final JoinPruningRule rule;
    private final Rule<LogicalPlan> nothing = new Nothing();

    public Inject(Rule<LogicalPlan> first, JoinPruningRule rule) {
      this.first = first;
      this.rule = rule;
    }

    @Override public Rule<LogicalPlan> apply(SparkSession session) {
      try {
        ExperimentalMethods methods = session.experimental();
        List<Rule<LogicalPlan>> rules = ScalaInterop.asJava(methods.extraOptimizations());
        if (rules.stream().noneMatch(rule::isSame)) {
          rules.addAll(List.of(first, rule));
          methods.extraOptimizations_$eq(ScalaInterop.asScala(rules));
        }
      } catch (Throwable failure) {
        Failures.forgive(failure); // else joins of this session provide no keys
      }
      return nothing;
    }
  }

  private static final class Nothing extends Rule<LogicalPlan> {
    @Override public LogicalPlan apply(LogicalPlan plan) {
      return plan;
    }
  }
}
