package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InputFileName;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.MonotonicallyIncreasingID;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$;
import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.InnerLike;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.RightOuter$;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.BaseEvalPython;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RebalancePartitions;
import org.apache.spark.sql.catalyst.plans.logical.RepartitionOperation;
import org.apache.spark.sql.catalyst.plans.logical.Sort;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.catalyst.plans.logical.WindowGroupLimit;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.keys.ScanNotes;
import rewrite.jvm.predicate.Casts;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.predicate.ValueTypes;
import rewrite.jvm.source.ScanSources;
import rewrite.jvm.source.TableStatistics;

/**
 * Takes "this column has one of the dimension's keys" from a join down to the scans.
 *
 * <p>It goes through what neither changes the column nor lets a row depend on rows with other
 * values of it. Whatever else stands in the way ends the walk, with the reason in explain.
 *
 * <pre>
 *   before                          after (keys of d for f.k)
 *   Aggregate k, sum(v)             Aggregate k, sum(v)
 *   +- Project id AS k, v           +- Project id AS k, v
 *      +- Relation f                   +- Filter dynamicpruning(id IN keys of d)
 *                                         +- Relation f
 * </pre>
 */
public final class KeyPushdown {
  /** Tables in a row through which keys go on. By each key there is a way of its own, so that all
      ways through a long chain would be very many. */
  private static final int MOST_HOPS = 2;

  private static final String RANDOM_CONDITION =
      "a condition that is not deterministic stands below the join";

  private final IndexClient client;
  private final PruningFeedback feedback;
  private final TableStatistics statistics;
  private final BuildSide dimension;
  private final ReuseAnalysis copies;
  private final LogicalPlan whole;
  private final List used = new ArrayList();
  private boolean shuffled;
  private boolean looks;
  private boolean counts;
  /** The conditions on the way to scans. */
  private final List passed = new ArrayList();

  /** `whole` is the side of the join that may lose rows. */
  public KeyPushdown(
      IndexClient client, PruningFeedback feedback, TableStatistics statistics,
      BuildSide dimension, ReuseAnalysis copies, LogicalPlan whole) {
    this.client = client;
    this.feedback = feedback;
    this.statistics = statistics;
    this.dimension = dimension;
    this.copies = copies;
    this.whole = whole;
    shuffled = !dimension.isBroadcast();
  }

  /** The same for the scan in which a command looks for rows: else its files are found before. */
  KeyPushdown looking() {
    looks = true;
    return this;
  }

  /** The plans that scans now wait for the keys of; none if no scan has the restriction. */
  public List used() {
    return used;
  }

  /** The plan with the restriction on its scans, or the plan as it is. */
  public LogicalPlan on(LogicalPlan plan, Expression key) {
    boolean above = shuffled;
    shuffled |= PlanSize.isShuffled(plan);
    LogicalPlan now = into(plan, key);
    shuffled = above;
    return now;
  }

  private LogicalPlan into(LogicalPlan plan, Expression key) {
    if (key.references().isEmpty()) {
      return refuse(plan, key, "the join key is " + Conditions.shape(key));
    }
    if (ScanSources.isScan(plan)) return scan(plan, null, key);
    if (plan instanceof Filter) return filter((Filter) plan, key);
    if (plan instanceof Project) return project((Project) plan, key);
    if (plan instanceof Join) return join((Join) plan, key);
    if (plan instanceof Aggregate) return aggregate((Aggregate) plan, key);
    if (plan instanceof Union) return union((Union) plan, key);
    if (plan instanceof Sort || isShuffle(plan)) return child(plan, key);
    // Each row for itself; a function says itself whether it is random.
    boolean byRow = plan instanceof Generate || plan instanceof BaseEvalPython;
    if (byRow && plan.deterministic()) return child(plan, key);
    if (plan instanceof Window && isIn(((Window) plan).partitionSpec(), key)) {
      return child(plan, key);
    }
    if (plan instanceof WindowGroupLimit && isIn(((WindowGroupLimit) plan).partitionSpec(), key)) {
      return child(plan, key);
    }
    if (plan instanceof Expand && plan.deterministic()) return expand((Expand) plan, key);
    return refuse(plan, key, "a " + plan.nodeName() + " stands between the join and the scan");
  }

  private LogicalPlan child(LogicalPlan plan, Expression key) {
    LogicalPlan child = plan.children().apply(0);
    if (!key.references().subsetOf(child.outputSet())) {
      return refuse(plan, key, "a " + plan.nodeName() + " makes the join key");
    }
    LogicalPlan now = on(child, key);
    List one = new ArrayList();
    one.add(now);
    return now == child ? plan : plan.withNewChildren(ScalaInterop.asScala(one));
  }

  private LogicalPlan filter(Filter filter, Expression key) {
    if (!filter.condition().deterministic()) {
      return refuse(filter, key, RANDOM_CONDITION);
    }
    passed.addAll(Conditions.conjuncts(filter.condition()));
    return ScanSources.isScan(filter.child())
        ? scan(filter.child(), filter, key)
        : child(filter, key);
  }

  private LogicalPlan project(Project project, Expression key) {
    List list = ScalaInterop.asJava(project.projectList());
    boolean isMarked = false;
    for (int i = 0; i < list.size(); i++) {
      Expression column = (Expression) list.get(i);
      boolean isMark = isMark(column) && isOfCommand(project);
      isMarked |= isMark;
      if (!isMark && !column.deterministic()) {
        return refuse(project, key, "a column that is not deterministic stands below the join");
      }
    }
    looks |= isMarked;
    counts |= isMarked;
    return child(project, through(key, list));
  }

  private static boolean isOfCommand(LogicalPlan plan) {
    List leaves = ScalaInterop.asJava(plan.collectLeaves());
    return leaves.size() == 1 && ScanSources.isOfCommand((LogicalPlan) leaves.get(0));
  }

  /** Whether a column tells rows apart for a MERGE, whatever its values. */
  private static boolean isMark(Expression column) {
    if (!(column instanceof Alias)) return false;
    Expression made = ((Alias) column).child();
    return made instanceof MonotonicallyIncreasingID || made instanceof InputFileName;
  }

  /** The key in terms of what lies below a list of columns. */
  private static Expression through(Expression key, List columns) {
    Map made = new HashMap();
    for (int i = 0; i < columns.size(); i++) {
      NamedExpression column = (NamedExpression) columns.get(i);
      if (column instanceof Alias) made.put(column.exprId(), ((Alias) column).child());
    }
    return replace(key, made);
  }

  /** An expression with others in the place of attributes, by their ids. */
  private static Expression replace(Expression in, final Map by) {
    return in.transformUp(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return node instanceof Attribute && by.containsKey(((Attribute) node).exprId());
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        return isDefinedAt(node) ? by.get(((Attribute) node).exprId()) : otherwise.apply(node);
      }
    });
  }

  private LogicalPlan aggregate(Aggregate aggregate, Expression key) {
    Expression below = through(key, ScalaInterop.asJava(aggregate.aggregateExpressions()));
    return isIn(aggregate.groupingExpressions(), below)
        ? child(aggregate, below)
        : refuse(aggregate, key, "an aggregate by other columns stands below the join");
  }

  /** Whether rows are taken together only where they have the key in common: then whole groups go,
      or none. */
  private static boolean isIn(scala.collection.Iterable groups, Expression key) {
    List columns = ScalaInterop.asJava(groups);
    for (int i = 0; i < columns.size(); i++) {
      Expression column = (Expression) columns.get(i);
      if (column.semanticEquals(key) || column.semanticEquals(Inversion.column(key))) return true;
    }
    return isMadeOf(columns, key);
  }

  /** Whether all that a key depends on is in some columns, and the same for rows that have them in
      common. */
  private static boolean isMadeOf(List columns, Expression key) {
    if (!key.deterministic()) return false;
    if (key.containsPattern(TreePattern$.MODULE$.AGGREGATE_EXPRESSION())) return false;
    for (scala.collection.Iterator each = key.references().iterator(); each.hasNext(); ) {
      Attribute needed = (Attribute) each.next();
      boolean isThere = false;
      for (int i = 0; i < columns.size(); i++) {
        isThere |= ((Expression) columns.get(i)).semanticEquals(needed);
      }
      if (!isThere || !ValueTypes.isExact(needed.dataType())) return false;
    }
    return true;
  }

  /** Whether rows only go elsewhere. */
  private static boolean isShuffle(LogicalPlan plan) {
    return plan instanceof RepartitionOperation || plan instanceof RebalancePartitions;
  }

  /** Each row becomes rows that have its key, or, of ROLLUP and the like, none: these have no
      partner, whatever they count, where a null equals nothing. */
  private LogicalPlan expand(Expand expand, Expression key) {
    List output = ScalaInterop.asJava(expand.output());
    List projections = ScalaInterop.asJava(expand.projections());
    boolean isBare = Casts.bare(key) instanceof Attribute;
    Map columns = new HashMap();
    for (int at = 0; at < output.size(); at++) {
      if (!key.references().contains((Attribute) output.get(at))) continue;
      Expression column = null;
      boolean isOne = true;
      for (int i = 0; i < projections.size(); i++) {
        Expression made = (Expression) ((scala.collection.Seq) projections.get(i)).apply(at);
        if (isBare && made instanceof Literal && ((Literal) made).value() == null) continue;
        if (column == null) column = made;
        isOne &= column.semanticEquals(made);
      }
      if (column == null || !isOne) {
        return refuse(expand, key, "grouping sets below the join do not all have the key");
      }
      columns.put(((Attribute) output.get(at)).exprId(), column);
    }
    return child(expand, replace(key, columns));
  }

  private LogicalPlan union(Union union, Expression key) {
    List output = ScalaInterop.asJava(union.output());
    List legs = ScalaInterop.asJava(union.children());
    boolean changed = false;
    for (int i = 0; i < legs.size(); i++) {
      LogicalPlan leg = (LogicalPlan) legs.get(i);
      Map columns = new HashMap();
      for (int at = 0; at < output.size(); at++) {
        columns.put(((Attribute) output.get(at)).exprId(), leg.output().apply(at));
      }
      LogicalPlan now = on(leg, replace(key, columns));
      changed |= now != leg;
      legs.set(i, now);
    }
    return changed ? union.withNewChildren(ScalaInterop.asScala(legs)) : union;
  }

  private LogicalPlan join(Join join, Expression key) {
    boolean isLeft = key.references().subsetOf(join.left().outputSet());
    if (!isLeft && !key.references().subsetOf(join.right().outputSet())) {
      return refuse(join, key, "a join makes the key");
    }
    if (join.condition().isDefined() && !join.condition().get().deterministic()) {
      return refuse(join, key, RANDOM_CONDITION);
    }
    if (isLeft ? !passesLeft(join.joinType()) : !passesRight(join.joinType())) {
      return refuse(join, key, EquiJoins.name(join.joinType()) + " stands between");
    }
    if (EquiJoins.keepsPartnerless(join.joinType())) dimension.strictly();
    LogicalPlan own = isLeft ? join.left() : join.right();
    LogicalPlan other = isLeft ? join.right() : join.left();
    LogicalPlan ownNow = on(own, key);
    LogicalPlan otherNow = other(join, key, isLeft, other);
    if (join.joinType() instanceof InnerLike && otherNow == other) {
      otherNow = across(join, key, isLeft);
    }
    if (ownNow == own && otherNow == other) return join;
    return join.copy(
        isLeft ? ownNow : otherNow, isLeft ? otherNow : ownNow, join.joinType(), join.condition(),
        join.hint());
  }

  /** The other side of a join on the very key: its rows need a partner that has one of the keys. */
  private LogicalPlan other(Join join, Expression key, boolean isLeft, LogicalPlan other) {
    // The keys are of that very side.
    if (dimension instanceof UnionSide && join.joinType() instanceof ExistenceJoin) return other;
    scala.Option keys = ExtractEquiJoinKeys$.MODULE$.unapply(join);
    if (keys.isEmpty()) return other;
    if (isLeft ? !EquiJoins.rightLoses(join.joinType()) : !EquiJoins.leftLoses(join.joinType())) {
      return other;
    }
    List own = EquiJoins.keys(keys, isLeft);
    List others = EquiJoins.keys(keys, !isLeft);
    for (int i = 0; i < own.size(); i++) {
      if (((Expression) own.get(i)).semanticEquals(key)) {
        other = on(other, (Expression) others.get(i));
      }
    }
    return other;
  }

  /**
   * A snowflake: the key is of `dim` in `fact JOIN dim`, so the fact's key is one of those that
   * `dim JOIN dimension` has.
   */
  private LogicalPlan across(Join join, Expression key, boolean isLeft) {
    LogicalPlan dim = isLeft ? join.left() : join.right();
    LogicalPlan side = isLeft ? join.right() : join.left();
    scala.Option keys = ExtractEquiJoinKeys$.MODULE$.unapply(join);
    // Rows that are not the same twice would have to be those of the one join, and without a
    // condition a bridge rarely has fewer keys.
    if (keys.isEmpty() || !dimension.selective() || dimension.fleeting() != null) return side;
    if (dimension instanceof RangeSide) return side; // which would join each row with each
    if (dimension.hops() == MOST_HOPS) return side;
    // The gate would refuse it: in a star each dimension is joined with all of the fact below it.
    scala.math.BigInt twice = PlanSize.bytes(dim).$times(scala.math.BigInt.apply(2));
    if (twice.compareTo(PlanSize.bytes(side)) >= 0) return side;
    List dimKeys = EquiJoins.keys(keys, isLeft);
    List sideKeys = EquiJoins.keys(keys, !isLeft);
    for (int i = 0; i < dimKeys.size(); i++) {
      Expression column = (Expression) dimKeys.get(i);
      BuildSide through = dimension.through(dim, key, column);
      KeyPushdown further =
          new KeyPushdown(client, feedback, statistics, through, copies, whole);
      further.shuffled |= shuffled;
      side = further.on(side, (Expression) sideKeys.get(i));
      used.addAll(further.used);
    }
    return side;
  }

  private static boolean passesLeft(JoinType type) {
    return type instanceof InnerLike || type == LeftOuter$.MODULE$ || type == LeftSemi$.MODULE$
        || type == LeftAnti$.MODULE$ || type instanceof ExistenceJoin;
  }

  private static boolean passesRight(JoinType type) {
    return type instanceof InnerLike || type == RightOuter$.MODULE$;
  }

  private LogicalPlan scan(LogicalPlan scan, Filter filter, Expression key) {
    LogicalPlan plan = filter == null ? scan : filter;
    List conditions = filter == null ? new ArrayList() : Conditions.conjuncts(filter.condition());
    PruningCost gate = cost(scan, conditions, key);
    ScanNotes.addKey(scan, dimension.join(), key);
    if (!gate.concerns()) return plan;
    if (ScanSources.findsFilesFirst(scan) && !looks) {
      ScanNotes.add(scan, "the command has found its files before");
      return plan;
    }
    if (ScanSources.isOfCommand(scan)) dimension.strictly();
    // An empty side of a join that shuffles may keep adaptive execution from running the other one.
    boolean isCounted = counts && ScanSources.findsFilesFirst(scan) && !dimension.isBroadcast();
    if (isCounted && gate.hasOwnConditions(passed)) {
      ScanNotes.add(scan, "Delta would miscount the source if no row met the other conditions");
      return plan;
    }
    BuildSide[] ways = gate.ways(dimension);
    for (int i = 0; i < ways.length; i++) {
      for (int j = 0; j < conditions.size(); j++) {
        Expression condition = Conditions.dynamic((Expression) conditions.get(j));
        if (!(condition instanceof DynamicPruningSubquery)) continue;
        DynamicPruningSubquery there = (DynamicPruningSubquery) condition;
        if (!ways[i].is(there, key)) continue;
        if (feedback.registry().isRegistered(there)) {
          used.add(ways[i].plan());
          return plan; // Spark runs the rule until nothing changes
        }
        // Spark's own, of partitions: it stays true where the dimension is not broadcast after all.
        if (gate.isPartition() && PlanSize.isBroadcast(there.buildQuery())) {
          String own = " is a partition column, and pruned by Spark";
          ScanNotes.add(scan, Conditions.shape(key) + own);
          return plan;
        }
      }
    }
    int alike = shuffled ? copies.of(whole) : 1;
    // Keys of a part are more: what all of the other side does not save they cannot.
    String refusal = gate.history(dimension, alike);
    if (refusal != null) {
      ScanNotes.add(scan, refusal);
      return plan;
    }
    for (int i = 0; i < ways.length; i++) {
      refusal = gate.refusal(ways[i], alike);
      if (refusal != null) continue;
      used.add(ways[i].plan());
      Expression condition = gate.let(ways[i], alike);
      return filter == null
          ? new Filter(condition, scan)
          : filter.copy(new And(filter.condition(), condition), scan);
    }
    ScanNotes.add(scan, refusal);
    return plan;
  }

  private PruningCost cost(LogicalPlan scan, List conditions, Expression key) {
    return new PruningCost(client, feedback, statistics, scan, conditions, key);
  }

  /** The plan as it is; its scans have a note why. */
  private LogicalPlan refuse(LogicalPlan plan, Expression key, String reason) {
    note(plan, key, reason);
    return plan;
  }

  /** Notes on the scans below, those that could be pruned, why they have no keys; whether there are
      any. */
  boolean note(LogicalPlan plan, Expression key, String reason) {
    List leaves = ScalaInterop.asJava(plan.collectLeaves());
    boolean found = false;
    for (int i = 0; i < leaves.size(); i++) {
      LogicalPlan leaf = (LogicalPlan) leaves.get(i);
      if (!cost(leaf, new ArrayList(), key).concerns()) continue;
      ScanNotes.add(leaf, reason);
      found = true;
    }
    return found;
  }
}
