package rewrite.jvm.join;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InputFileName;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.MonotonicallyIncreasingID;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.InnerLike;
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
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.ScanNotes;
import rewrite.jvm.predicate.Casts;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.predicate.ValueTypes;
import rewrite.jvm.source.ScanSources;

/**
 * Takes the filter "this expression has one of the keys" from a join down to the scans.
 *
 * <p>It passes operators that neither change the key nor combine rows with different keys. Other
 * operators end the walk, with the reason in explain. Files with rows that meet one of the conditions
 * `alsoNeeded` stay.
 *
 * <pre>
 *   before                          after (keys of d for f.k)
 *   Aggregate k, sum(v)             Aggregate k, sum(v)
 *   +- Project id AS k, v           +- Project id AS k, v
 *      +- Relation f                   +- Filter dynamicpruning(id IN keys of d)
 *                                         +- Relation f
 * </pre>
 *
 * @param postponed gets keys that only a shuffle of the query may have, instead of the scan: the other
 *     side of the join may have better ones. If it is null, the scan gets them.
 */
record KeyPushdown(
    PruningContext context, ReuseAnalysis copies, LogicalPlan pruningSide,
    List<Expression> alsoNeeded, List<Expression> postponed) {
  /** Tables in a row through which keys go on. By each key there is another way, and a long chain
      has very many ways. */
  private static final int MAX_HOPS = 2;

  private static final String RANDOM_CONDITION =
      "a condition that is not deterministic stands below the join";

  /** A plan after the pushdown, and the filtering plans whose keys its scans wait for. */
  record Result(LogicalPlan plan, List<LogicalPlan> filteringPlans) {
    static Result keep(LogicalPlan plan) {
      return new Result(plan, List.of());
    }

    /** Return the result of another pushdown into this one's plan, with the filtering plans of
        both. */
    Result then(Result next) {
      List<LogicalPlan> plans = new ArrayList<>(filteringPlans);
      plans.addAll(next.filteringPlans);
      return new Result(next.plan, plans);
    }

    Result with(LogicalPlan parent) {
      return new Result(parent, filteringPlans);
    }
  }

  /**
   * The way from the join down to an operator.
   *
   * @param isShuffled whether rows are shuffled above the operator
   * @param findsRows whether a command looks for rows there; if not, it has found its files before
   * @param isCounted whether Delta counts rows above the operator
   * @param conditions the conditions above the operator
   */
  private record Path(
      FilteringSide side, boolean isShuffled, boolean findsRows, boolean isCounted,
      List<Expression> conditions) {
    Path(FilteringSide side, boolean isShuffled, boolean findsRows) {
      this(side, isShuffled || !side.isBroadcast(), findsRows, false, List.of());
    }

    Path belowShuffle() {
      return new Path(side, true, findsRows, isCounted, conditions);
    }

    Path belowMark() {
      return new Path(side, isShuffled, true, true, conditions);
    }

    Path belowConditions(List<Expression> more) {
      List<Expression> all = new ArrayList<>(conditions);
      all.addAll(more);
      return new Path(side, isShuffled, findsRows, isCounted, all);
    }

    Path requireExactRows() {
      return new Path(side.requireExactRows(), isShuffled, findsRows, isCounted, conditions);
    }
  }

  /** Push the keys of a side to the scans of a plan, where a command may look for rows. */
  Result push(LogicalPlan plan, Expression key, FilteringSide side, boolean findsRows) {
    return push(plan, key, new Path(side, false, findsRows));
  }

  private Result push(LogicalPlan plan, Expression key, Path above) {
    Path path = PlanSize.isShuffled(plan) ? above.belowShuffle() : above;
    if (key.references().isEmpty()) {
      return refuse(plan, key, "the join key is " + Conditions.shape(key));
    }
    if (ScanSources.isScan(plan)) return pushIntoScan(plan, null, key, path);
    if (plan instanceof Filter filter) return pushThroughFilter(filter, key, path);
    if (plan instanceof Project project) return pushThroughProject(project, key, path);
    if (plan instanceof Join join) return pushThroughJoin(join, key, path);
    if (plan instanceof Aggregate aggregate) return pushThroughAggregate(aggregate, key, path);
    if (plan instanceof Union union) return pushThroughUnion(union, key, path);
    if (plan instanceof Expand expand && plan.deterministic()) {
      return pushThroughExpand(expand, key, path);
    }
    if (passes(plan, key)) return pushIntoChild(plan, key, path);
    if (plan.isStreaming() && plan.children().isEmpty()) {
      ScanNotes.add(plan, "the source of this stream takes no keys");
      return Result.keep(plan);
    }
    return refuse(plan, key, "a " + plan.nodeName() + " stands between the join and the scan");
  }

  /** Whether a key passes an operator as it is. */
  static boolean passes(LogicalPlan plan, Expression key) {
    if (plan instanceof Window window) return isIn(window.partitionSpec(), key);
    if (plan instanceof WindowGroupLimit limit) return isIn(limit.partitionSpec(), key);
    // These read each row alone; a function declares it if it is random.
    if (plan instanceof Generate || plan instanceof BaseEvalPython) return plan.deterministic();
    return plan instanceof Sort || plan instanceof RepartitionOperation
        || plan instanceof RebalancePartitions;
  }

  private Result pushIntoChild(LogicalPlan plan, Expression key, Path path) {
    LogicalPlan child = plan.children().head();
    if (!key.references().subsetOf(child.outputSet())) {
      return refuse(plan, key, "a " + plan.nodeName() + " makes the join key");
    }
    Result result = push(child, key, path);
    return result.with(
        result.plan == child
            ? plan
            : plan.withNewChildren(ScalaInterop.asScala(List.of(result.plan))));
  }

  private Result pushThroughFilter(Filter filter, Expression key, Path path) {
    if (!filter.condition().deterministic()) return refuse(filter, key, RANDOM_CONDITION);
    Path below = path.belowConditions(Conditions.conjuncts(filter.condition()));
    return ScanSources.isScan(filter.child())
        ? pushIntoScan(filter.child(), filter, key, below)
        : pushIntoChild(filter, key, below);
  }

  private Result pushThroughProject(Project project, Expression key, Path path) {
    List<NamedExpression> columns = ScalaInterop.asJava(project.projectList());
    boolean isMarked = columns.stream().anyMatch(KeyPushdown::isMark) && isOfCommand(project);
    for (NamedExpression column : columns) {
      if (!((Expression) column).deterministic() && !(isMarked && isMark(column))) {
        return refuse(project, key, "a column that is not deterministic stands below the join");
      }
    }
    return pushIntoChild(project, mapKey(key, columns), isMarked ? path.belowMark() : path);
  }

  static boolean isOfCommand(LogicalPlan plan) {
    List<LogicalPlan> leaves = ScalaInterop.asJava(plan.collectLeaves());
    return leaves.size() == 1 && ScanSources.isOfCommand(leaves.get(0));
  }

  /** Whether a MERGE looks for files in a plan of its table, before it reads these again. */
  static boolean looksForFiles(LogicalPlan plan) {
    return isOfCommand(plan)
        && plan.exists(
            node ->
                node instanceof Project project
                    && ScalaInterop.asJava(project.projectList()).stream()
                        .anyMatch(
                            column ->
                                column instanceof Alias alias
                                    && alias.child() instanceof InputFileName));
  }

  /** Whether a column identifies rows for a MERGE, whatever its values. */
  private static boolean isMark(NamedExpression column) {
    return column instanceof Alias alias
        && (alias.child() instanceof MonotonicallyIncreasingID
            || alias.child() instanceof InputFileName);
  }

  /** Return the key in terms of the plan below a list of columns. */
  static Expression mapKey(Expression key, List<NamedExpression> columns) {
    Map<ExprId, Expression> aliases = new HashMap<>();
    for (NamedExpression column : columns) {
      if (column instanceof Alias alias) aliases.put(alias.exprId(), alias.child());
    }
    return replace(key, aliases);
  }

  /** Return an expression with others in the place of attributes, by their ids. */
  private static Expression replace(Expression in, Map<ExprId, Expression> replacements) {
    return in.transformUp(
        ScalaInterop.transformation(
            node ->
                node instanceof Attribute attribute
                    ? replacements.getOrDefault(attribute.exprId(), node)
                    : node));
  }

  private Result pushThroughAggregate(Aggregate aggregate, Expression key, Path path) {
    Expression below = mapKey(key, ScalaInterop.asJava(aggregate.aggregateExpressions()));
    return isIn(aggregate.groupingExpressions(), below)
        ? pushIntoChild(aggregate, below, path)
        : refuse(aggregate, key, "an aggregate by other columns stands below the join");
  }

  /** Whether all rows of a group have the same key: then the keys prune complete groups. */
  static boolean isIn(scala.collection.Iterable<Expression> groups, Expression key) {
    List<Expression> columns = ScalaInterop.asJava(groups);
    Expression inside = Inversion.column(key);
    for (Expression column : columns) {
      if (column.semanticEquals(key) || column.semanticEquals(inside)) return true;
    }
    return isComputedFrom(columns, key);
  }

  /** Whether a key depends only on some columns, and is the same for rows with equal columns. */
  private static boolean isComputedFrom(List<Expression> columns, Expression key) {
    return key.deterministic()
        && !key.containsPattern(TreePattern$.MODULE$.AGGREGATE_EXPRESSION())
        && ScalaInterop.asJava(key.references().toSeq()).stream()
            .allMatch(
                needed ->
                    ValueTypes.isExact(needed.dataType())
                        && columns.stream().anyMatch(each -> each.semanticEquals(needed)));
  }

  /** Each row becomes rows with its key, or, for ROLLUP and the like, without one. Those have no
      partner, whatever they count, because a null equals nothing. */
  private Result pushThroughExpand(Expand expand, Expression key, Path path) {
    List<Attribute> output = ScalaInterop.asJava(expand.output());
    boolean isBare = Casts.bare(key) instanceof Attribute;
    Map<ExprId, Expression> columns = new HashMap<>();
    for (int at = 0; at < output.size(); at++) {
      if (!key.references().contains(output.get(at))) continue;
      Expression column = null;
      boolean isSame = true;
      for (var projection : ScalaInterop.asJava(expand.projections())) {
        Expression value = projection.apply(at);
        if (isBare && value instanceof Literal literal && literal.value() == null) continue;
        if (column == null) column = value;
        isSame &= column.semanticEquals(value);
      }
      if (column == null || !isSame) {
        return refuse(expand, key, "grouping sets below the join do not all have the key");
      }
      columns.put(output.get(at).exprId(), column);
    }
    return pushIntoChild(expand, replace(key, columns), path);
  }

  private Result pushThroughUnion(Union union, Expression key, Path path) {
    List<Attribute> output = ScalaInterop.asJava(union.output());
    List<LogicalPlan> children = ScalaInterop.asJava(union.children());
    Result result = Result.keep(union);
    boolean isChanged = false;
    for (int i = 0; i < children.size(); i++) {
      LogicalPlan child = children.get(i);
      Map<ExprId, Expression> columns = new HashMap<>();
      for (int at = 0; at < output.size(); at++) {
        columns.put(output.get(at).exprId(), child.output().apply(at));
      }
      result = result.then(push(child, replace(key, columns), path));
      isChanged |= result.plan != child;
      children.set(i, result.plan);
    }
    return result.with(isChanged ? union.withNewChildren(ScalaInterop.asScala(children)) : union);
  }

  private Result pushThroughJoin(Join join, Expression key, Path above) {
    boolean isLeft = key.references().subsetOf(join.left().outputSet());
    if (!isLeft && !key.references().subsetOf(join.right().outputSet())) {
      return refuse(join, key, "a join makes the key");
    }
    if (join.condition().isDefined() && !join.condition().get().deterministic()) {
      return refuse(join, key, RANDOM_CONDITION);
    }
    if (!JoinTypes.passes(join.joinType(), isLeft)) {
      return refuse(join, key, JoinTypes.name(join.joinType()) + " stands between");
    }
    Path path = JoinTypes.keepsPartnerless(join.joinType()) ? above.requireExactRows() : above;
    LogicalPlan own = isLeft ? join.left() : join.right();
    LogicalPlan other = isLeft ? join.right() : join.left();
    Result ownResult = push(own, key, path);
    Result otherResult = pushToOtherSide(join, key, isLeft, path);
    if (join.joinType() instanceof InnerLike && otherResult.plan == other) {
      otherResult = otherResult.then(pushAcross(join, key, isLeft, path));
    }
    LogicalPlan ownPlan = ownResult.plan;
    LogicalPlan otherPlan = otherResult.plan;
    Result result = ownResult.then(otherResult);
    if (ownPlan == own && otherPlan == other) return result.with(join);
    return result.with(
        join.copy(
            isLeft ? ownPlan : otherPlan, isLeft ? otherPlan : ownPlan, join.joinType(),
            join.condition(), join.hint()));
  }

  /** Push to the other side of a join on the key itself: its rows need a partner with a key. */
  private Result pushToOtherSide(Join join, Expression key, boolean isLeft, Path path) {
    Result result = Result.keep(isLeft ? join.right() : join.left());
    // The keys of an OR come from that side.
    boolean isOfSide =
        path.side.keys() instanceof JoinKeys.UnionKeys && join.joinType() instanceof ExistenceJoin;
    if (isOfSide || !JoinTypes.canLose(join.joinType(), !isLeft)) return result;
    EquiKeys keys = EquiKeys.of(join);
    for (int i = 0; i < keys.left().size(); i++) {
      if (!keys.of(isLeft).get(i).semanticEquals(key)) continue;
      result = result.then(push(result.plan, keys.of(!isLeft).get(i), path));
    }
    return result;
  }

  /**
   * Push through a snowflake: the key belongs to `dim` in `fact JOIN dim`, so the fact's key is one
   * of the keys of `dim JOIN side`.
   */
  private Result pushAcross(Join join, Expression key, boolean isLeft, Path path) {
    LogicalPlan dim = isLeft ? join.left() : join.right();
    Result result = Result.keep(isLeft ? join.right() : join.left());
    EquiKeys keys = EquiKeys.of(join);
    FilteringSide side = path.side;
    // Rows of a non-repeatable side would have to come from the one join, and a bridge without a
    // condition rarely has fewer keys. Ranges would join each row with each.
    if (keys.isEmpty() || !Selectivity.isSelective(side.plan())
        || side.nonRepeatableReason() != null || side.keys() instanceof JoinKeys.RowKeys
        || side.hops() == MAX_HOPS) {
      return result;
    }
    // It has no benefit: in a star each dimension is joined with the complete fact below it.
    BigInteger twice = PlanSize.bytes(dim).multiply(BigInteger.TWO);
    if (twice.compareTo(PlanSize.bytes(result.plan)) >= 0) return result;
    for (int i = 0; i < keys.left().size(); i++) {
      FilteringSide bridge = side.joinTo(dim, key, keys.of(isLeft).get(i));
      Path across = new Path(bridge, path.isShuffled, false);
      result = result.then(push(result.plan, keys.of(!isLeft).get(i), across));
    }
    return result;
  }

  /** `filter` is the filter directly above the scan, or null. */
  private Result pushIntoScan(LogicalPlan scan, Filter filter, Expression key, Path path) {
    Result unchanged = Result.keep(filter == null ? scan : filter);
    List<Expression> conditions =
        filter == null ? List.of() : Conditions.conjuncts(filter.condition());
    PruningCost cost = new PruningCost(context, scan, conditions, key);
    ScanNotes.addKey(scan, path.side.join(), key);
    if (!cost.appliesTo()) return unchanged;
    boolean hasFiles = ScanSources.findsFilesFirst(scan);
    if (hasFiles && !path.findsRows) {
      ScanNotes.add(scan, "the command has found its files before");
      return unchanged;
    }
    FilteringSide side = ScanSources.isOfCommand(scan) ? path.side.requireExactRows() : path.side;
    // Adaptive execution may not run one side of a join if the other, shuffled, side is empty.
    boolean isCounted = path.isCounted && hasFiles && !side.isBroadcast();
    if (isCounted && cost.dependsOnRows(path.conditions)) {
      ScanNotes.add(scan, "Delta would miscount the source if no row met the other conditions");
      return unchanged;
    }
    List<FilteringSide> candidates = cost.candidateSides(side);
    for (FilteringSide candidate : candidates) {
      DynamicPruningSubquery present = find(conditions, candidate, key, cost.isPartition());
      if (present == null) continue;
      if (context.registry().isRegistered(present)) { // Spark repeats the rule
        return new Result(unchanged.plan, List.of(candidate.plan()));
      }
      ScanNotes.add(scan, Conditions.shape(key) + " is a partition column, and pruned by Spark");
      return unchanged;
    }
    int count = path.isShuffled ? copies.count(pruningSide) : 1;
    // A part has more keys: if those of the complete side prune too little, so do those of a part.
    String reason = cost.rejectReasonOfFeedback(side, count);
    if (reason == null) {
      for (FilteringSide candidate : candidates) {
        reason = cost.rejectReason(candidate, count);
        if (reason != null) continue;
        if (postponed != null && cost.isOnlyShuffled(candidate)) {
          postponed.add(key);
          return unchanged;
        }
        Expression keys = cost.createFilter(candidate, count, alsoNeeded);
        Filter now =
            filter == null
                ? new Filter(keys, scan)
                : filter.copy(new And(filter.condition(), keys), scan);
        return new Result(now, List.of(candidate.plan()));
      }
    }
    ScanNotes.add(scan, reason);
    return unchanged;
  }

  /** Return the filter for the keys of a side among some conditions, or null. Spark's own is for
      partitions only, and becomes `true` if Spark does not broadcast after all. */
  private DynamicPruningSubquery find(
      List<Expression> conditions, FilteringSide side, Expression key, boolean isPartition) {
    for (Expression condition : conditions) {
      if (Conditions.dynamic(condition) instanceof DynamicPruningSubquery present
          && side.keys().areOf(present, key)
          && (context.registry().isRegistered(present)
              || isPartition && PlanSize.isBroadcast(present.buildQuery()))) {
        return present;
      }
    }
    return null;
  }

  /** Return the plan as it is; its scans get a note of the reason. */
  private Result refuse(LogicalPlan plan, Expression key, String reason) {
    note(plan, key, reason);
    return Result.keep(plan);
  }

  /** Note on scans that could be pruned why they get no keys; whether there are any. */
  boolean note(LogicalPlan plan, Expression key, String reason) {
    boolean isNoted = false;
    for (LogicalPlan leaf : ScalaInterop.asJava(plan.collectLeaves())) {
      if (!new PruningCost(context, leaf, List.of(), key).appliesTo()) continue;
      ScanNotes.add(leaf, reason);
      isNoted = true;
    }
    return isNoted;
  }
}
