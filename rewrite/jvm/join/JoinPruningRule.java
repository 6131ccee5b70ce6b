package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$;
import org.apache.spark.sql.catalyst.planning.ExtractSingleColumnNullAwareAntiJoin$;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RowLevelWrite;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.keys.ScanNotes;
import rewrite.jvm.source.ScanSources;
import rewrite.jvm.source.TableStatistics;

/**
 * Finds joins whose one side can say which rows of the other have a partner, and puts Spark's own
 * dynamic-pruning expression on the scan of that other side.
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
 * <p>Which side may lose rows without a partner:
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
 * Runs after all of Spark's own rules, where filters stand directly above the scans.
 * FilePruningRule takes the expressions out of the physical plan again; without it they must not be
 * put in.
 */
public final class JoinPruningRule extends Rule {
  private final IndexClient client;
  private final PruningFeedback feedback;
  private final TableStatistics statistics;

  public JoinPruningRule(
      IndexClient client, PruningFeedback feedback, TableStatistics statistics) {
    this.client = client;
    this.feedback = feedback;
    this.statistics = statistics;
  }

  public String ruleName() {
    return "rewrite.JoinPruningRule";
  }

  public TreeNode apply(TreeNode plan) {
    try {
      LogicalPlan logical = (LogicalPlan) plan;
      if (!client.collectsKeys() || isUnfinished(logical) || hasState(logical, true)) return plan;
      return new Pass(new ReuseAnalysis(logical, feedback)).visit(logical);
    } catch (Throwable failure) {
      String reason = "looking for them failed: " + Failures.forgive(failure);
      List leaves = ScalaInterop.asJava(((LogicalPlan) plan).collectLeaves());
      for (int i = 0; i < leaves.size(); i++) {
        ScanNotes.add((LogicalPlan) leaves.get(i), reason);
      }
      return plan;
    }
  }

  /** Whether a plan is that of a correlated subquery. Spark has still to join it with the query
      around it, and cannot plan what refers to that as it stands. The rule comes again for all of
      the query. */
  private static boolean isUnfinished(LogicalPlan plan) {
    return plan instanceof Subquery && ((Subquery) plan).correlated();
  }

  /** Whether a batch of a stream goes through more than what looks at each row by itself. State is
      not for us to touch, and its rows are not those of the batch. */
  private static boolean hasState(LogicalPlan plan, boolean isRoot) {
    if (!plan.isStreaming()) return false;
    List children = ScalaInterop.asJava(plan.children());
    boolean byRow =
        children.isEmpty() || plan instanceof Project || plan instanceof Filter
            || plan instanceof Join && !areStreams(children)
            || isRoot && plan.getClass().getSimpleName().startsWith("WriteTo");
    if (!byRow) return true;
    for (int i = 0; i < children.size(); i++) {
      if (hasState((LogicalPlan) children.get(i), false)) return true;
    }
    return false;
  }

  private static boolean areStreams(List plans) {
    for (int i = 0; i < plans.size(); i++) {
      if (!((LogicalPlan) plans.get(i)).isStreaming()) return false;
    }
    return true;
  }

  /** Whether a command needs of its table only the rows that it changes. Those that replace files
      need all rows of these. */
  private static boolean looksForRows(LogicalPlan command) {
    return command instanceof WriteDelta && SkippingConf.servesCommands();
  }

  /** Whether a rule is this one: sessions are cloned with their rules. */
  public boolean is(Object other) {
    return other instanceof JoinPruningRule && ((JoinPruningRule) other).client == client;
  }

  /** One walk over one plan, from the root down. */
  private final class Pass {
    /** Sides that keys are taken from: what is filtered in there would have to wait in turn. */
    private final Set dimensions = Collections.newSetFromMap(new IdentityHashMap());
    /** Existence joins whose keys are on scans, with all that stands beside them in an OR. */
    private final Set united = new HashSet();
    private final ReuseAnalysis copies;

    Pass(ReuseAnalysis copies) {
      this.copies = copies;
    }

    LogicalPlan visit(LogicalPlan plan) {
      if (plan instanceof RowLevelWrite && !looksForRows(plan)) return plan;
      LogicalPlan now = plan.transformExpressionsDown(new Subqueries(this));
      if (now instanceof Join) now = join((Join) now);
      if (now instanceof Filter) now = filter((Filter) now);
      if (now instanceof Filter && ScanSources.isScan(((Filter) now).child())) {
        now = TupleSide.added((Filter) now, feedback);
      }
      List children = ScalaInterop.asJava(now.children());
      boolean changed = false;
      for (int i = 0; i < children.size(); i++) {
        LogicalPlan child = (LogicalPlan) children.get(i);
        LogicalPlan visited = dimensions.contains(child) ? child : visit(child);
        changed |= visited != child;
        children.set(i, visited);
      }
      return changed ? now.withNewChildren(ScalaInterop.asScala(children)) : now;
    }

    private LogicalPlan join(Join join) {
      scala.Option keys = ExtractEquiJoinKeys$.MODULE$.unapply(join);
      if (keys.isEmpty()) refuseNotIn(join);
      // The greater side first: the smaller one is the dimension.
      boolean left = PlanSize.bytes(join.left()).compareTo(PlanSize.bytes(join.right())) >= 0;
      LogicalPlan found = side(join, keys, left);
      if (found == null) found = side(join, keys, !left);
      // Of rows that are given Spark takes the size for endless: then the other side is the fact.
      if (found == null && !refuseAll(join, keys, left)) refuseAll(join, keys, !left);
      return found == null ? join : found;
    }

    /** The filter with what its conditions with OR say of keys on the scans below. */
    private LogicalPlan filter(Filter filter) {
      List sides = UnionSide.of(filter);
      LogicalPlan child = filter.child();
      for (int i = 0; i < sides.size(); i++) {
        UnionSide side = (UnionSide) sides.get(i);
        KeyPushdown restriction = pushdown(side, child);
        String refusal = side.refusal(PlanSize.bytes(child));
        if (refusal != null) {
          restriction.note(child, side.column(), refusal);
          continue;
        }
        child = restriction.on(child, side.column());
        if (!restriction.used().isEmpty()) united.addAll(side.joins());
        dimensions.addAll(restriction.used());
      }
      return child == filter.child() ? filter : filter.copy(filter.condition(), child);
    }

    /** Adds a side's keys, and for each the other side that has to have an equal one. */
    private void addEqual(Join join, scala.Option equal, boolean left, List keys, List others) {
      if (equal.isEmpty()) return;
      List own = EquiJoins.keys(equal, left);
      Object one = new Object();
      for (int i = 0; i < own.size(); i++) {
        if (own.get(i) instanceof IsNull) continue; // the other half of `<=>`
        keys.add(own.get(i));
        others.add(
            new BuildSide(
                left ? join.right() : join.left(), EquiJoins.keys(equal, !left), i,
                PlanSize.isHinted(join, !left)).of(one, own.size()));
      }
    }

    /** Adds a side's columns that have to be within a range of the other side. */
    private void addRanges(Join join, boolean left, List keys, List others) {
      List ranges = RangeSide.of(join, left);
      for (int i = 0; i < ranges.size(); i++) {
        keys.add(((RangeSide) ranges.get(i)).column());
        others.add(ranges.get(i));
      }
    }

    private void refuseNotIn(Join join) {
      scala.Option found = ExtractSingleColumnNullAwareAntiJoin$.MODULE$.unapply(join);
      if (found.isEmpty()) return;
      scala.Tuple2 keys = (scala.Tuple2) found.get();
      List left = ScalaInterop.asJava((scala.collection.Iterable) keys._1());
      List right = ScalaInterop.asJava((scala.collection.Iterable) keys._2());
      BuildSide dimension = new BuildSide(join.right(), right, 0, false);
      pushdown(dimension, join.left())
          .note(join.left(), (Expression) left.get(0), "NOT IN keeps rows without a partner");
    }

    /** Notes of one side of a join that the other one has all of its keys; whether there is a scan
        to note it of. */
    private boolean refuseAll(Join join, scala.Option equal, boolean left) {
      LogicalPlan side = left ? join.left() : join.right();
      List keys = new ArrayList();
      List others = new ArrayList();
      addEqual(join, equal, left, keys, others);
      boolean noted = false;
      for (int i = 0; i < keys.size(); i++) {
        BuildSide dimension = (BuildSide) others.get(i);
        String refusal = dimension.refusal(PlanSize.bytes(side));
        if (refusal != null) {
          noted |= pushdown(dimension, side).note(side, (Expression) keys.get(i), refusal);
        }
      }
      return noted;
    }

    private KeyPushdown pushdown(BuildSide dimension, LogicalPlan plan) {
      return new KeyPushdown(client, feedback, statistics, dimension, copies, plan);
    }

    private void refuse(
        KeyPushdown restriction, Join join, LogicalPlan side, Expression key) {
      if (united.contains(join.joinType())) return;
      String kept = EquiJoins.name(join.joinType()) + " keeps rows without a partner";
      restriction.note(side, key, kept);
    }

    /** The join with the keys of one side on the scans of the other; null where there are none. */
    private LogicalPlan side(Join join, scala.Option equal, boolean left) {
      LogicalPlan side = left ? join.left() : join.right();
      List keys = new ArrayList();
      List others = new ArrayList();
      addEqual(join, equal, left, keys, others);
      addRanges(join, left, keys, others);
      boolean found = false;
      for (int i = 0; i < keys.size(); i++) {
        Expression key = (Expression) keys.get(i);
        BuildSide dimension = (BuildSide) others.get(i);
        if (EquiJoins.keepsPartnerless(join.joinType())) dimension.strictly();
        if (dimension.refusal(PlanSize.bytes(side)) != null) continue;
        KeyPushdown restriction = pushdown(dimension, side);
        // In a MERGE that only inserts no row of the table has a mark.
        if (join.joinType() == LeftAnti$.MODULE$) restriction.looking();
        if (left ? EquiJoins.leftLoses(join.joinType()) : EquiJoins.rightLoses(join.joinType())) {
          side = restriction.on(side, key);
        } else {
          refuse(restriction, join, side, key);
        }
        found |= !restriction.used().isEmpty();
        dimensions.addAll(restriction.used());
      }
      if (!found) return null;
      return join.copy(
          left ? side : join.left(), left ? join.right() : side, join.joinType(),
          join.condition(), join.hint());
    }
  }

  /** Visits the plans of subqueries, which are no children. */
  private static final class Subqueries extends scala.runtime.AbstractPartialFunction {
    private final Pass pass;

    Subqueries(Pass pass) {
      this.pass = pass;
    }

    public boolean isDefinedAt(Object node) {
      return node instanceof SubqueryExpression
          && !(node instanceof DynamicPruningSubquery)
          && !((SubqueryExpression) node).isCorrelated();
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      if (!isDefinedAt(node)) return otherwise.apply(node);
      SubqueryExpression subquery = (SubqueryExpression) node;
      LogicalPlan plan = subquery.plan();
      LogicalPlan visited = pass.visit(plan);
      return visited == plan ? subquery : subquery.withNewPlan(visited);
    }
  }

  /**
   * What `injectResolutionRule` takes: adds the rule to each session's own optimizer rules.
   *
   * <p>Only `extraOptimizations` run late enough; the builder is called once for every session,
   * `newSession()` included, on its first analysis.
   */
  public static final class Inject extends scala.runtime.AbstractFunction1 {
    private final JoinPruningRule rule;
    private final Rule nothing = new Nothing();

    public Inject(JoinPruningRule rule) {
      this.rule = rule;
    }

    public Object apply(Object session) {
      try {
        org.apache.spark.sql.ExperimentalMethods methods =
            ((org.apache.spark.sql.SparkSession) session).experimental();
        List rules = ScalaInterop.asJava(methods.extraOptimizations());
        boolean there = false;
        for (int i = 0; i < rules.size(); i++) {
          there |= rule.is(rules.get(i));
        }
        if (!there) {
          rules.add(rule);
          methods.extraOptimizations_$eq(ScalaInterop.asScala(rules));
        }
      } catch (Throwable failure) {
        Failures.forgive(failure); // else joins of this session provide no keys
      }
      return nothing;
    }
  }

  /** A rule that does nothing. */
  private static final class Nothing extends Rule {
    public TreeNode apply(TreeNode plan) {
      return plan;
    }
  }
}
