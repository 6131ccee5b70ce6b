package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.BloomFilterMightContain;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.RowLevelWrite;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.apache.spark.sql.execution.SQLExecution;
import rewrite.jvm.bridge.Budget;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.ScanNotes;
import rewrite.jvm.predicate.Casts;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.Range;
import rewrite.jvm.predicate.StaticKeys;
import rewrite.jvm.shims.Sessions;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.ScanSources;
import rewrite.jvm.source.TableStatistics;

/**
 * Prunes the scans of joins by what tables know of each other, before anything runs.
 *
 * <p>The filtering side is a scan of a snapshot. The files that its conditions leave have known
 * partition values, or bounds: its keys are among them. They are compared with the partitions, bounds
 * and index of the pruning side. If that loses files, it may provide fewer keys in turn, so this is
 * repeated for all joins of a query, in both directions.
 *
 * <pre>
 *   before                          after (the files of d with g = 3 have k from 3 to 5)
 *   Join Inner, f.k = d.k           Join Inner, f.k = d.k
 *   :- Relation f                   :- Filter true OR (... f.k >= 3 AND f.k <= 5)
 *   +- Filter d.g = 3               :  +- Relation f
 *      +- Relation d                +- Filter d.g = 3
 *                                      +- Relation d
 * </pre>
 *
 * <p>A row that a pruned file has would be lost at a join above, whatever else is pruned.
 */
record StaticJoins(PruningContext context) {
  private static final int MAX_ROUNDS = 4;

  /** Return the plan with the keys; the plan itself if no scan loses files. */
  LogicalPlan add(LogicalPlan plan) {
    // Spark calls the rule for a subquery's plan first, and then for the plan that it is in.
    if (plan instanceof Subquery) return plan;
    List<LogicalPlan> leaves = ScalaInterop.asJava(plan.collectLeaves());
    try {
      List<Edge> edges = new Finder(plan).findEdges();
      if (edges.isEmpty()) return plan;
      Map<ExprId, Expression> found = solve(plan, edges);
      // In dynamic filters, too: they reuse the broadcast of a plan only if it is the same.
      return found.isEmpty()
          ? plan
          : plan.transformUpWithSubqueries(
              ScalaInterop.transformation(node -> place(node, found)));
    } catch (Throwable failure) {
      for (LogicalPlan leaf : leaves) noteFailure(leaf, failure);
      return plan;
    }
  }

  private static void noteFailure(LogicalPlan leaf, Throwable failure) {
    ScanNotes.add(
        leaf, "comparing it with the bounds of other tables failed: " + Failures.forgive(failure));
  }

  private static LogicalPlan place(LogicalPlan node, Map<ExprId, Expression> found) {
    if (ScanSources.isScan(node)) {
      Expression keys = node.output().isEmpty() ? null : found.get(id(node));
      return keys == null ? node : new Filter(keys, node);
    }
    // Filters are directly above their scan.
    return node instanceof Filter filter && filter.child() instanceof Filter keys
            && Conditions.conjuncts(keys.condition()).stream().allMatch(StaticKeys::isOne)
        ? filter.copy(new And(filter.condition(), keys.condition()), keys.child())
        : node;
  }

  private static ExprId id(LogicalPlan scan) {
    return scan.output().head().exprId();
  }

  /** Return the conditions of scans by the id of their first column. Tables are read in a thread, for
      half of the time that the query has for lookups; then what was found by that time is used. */
  private Map<ExprId, Expression> solve(LogicalPlan plan, List<Edge> edges) throws Exception {
    Solver solver = new Solver(context, edges, new ReuseAnalysis(plan, context.registry()));
    Budget budget = context.client().budget();
    long patience = budget.remaining() / 2;
    budget.begin();
    try {
      if (patience == 0) throw new TimeoutException();
      Sessions.submit(SparkSession.active(), context.client().threads(), solver)
          .get(patience, TimeUnit.NANOSECONDS);
    } catch (TimeoutException late) {
      String reason =
          "the bounds of other tables were not read within half of spark.skipping.timeout";
      for (Edge edge : edges) ScanNotes.add(edge.to.leaf, reason);
    } finally {
      solver.stop();
      budget.end();
    }
    solver.failures.forEach((edge, failure) -> noteFailure(edge.to.leaf, failure));
    return solver.findConditions();
  }

  /** A scan of the query: its conditions, and while joins are solved the files that remain. */
  private static final class Scan {
    final LogicalPlan leaf;
    final List<Expression> conditions;
    ScanSource source;
    /** Never changed, but replaced: the planner reads it when the solver is late. */
    volatile Map<Edge, KeyValues> keys = Map.of();
    /** The locations of the files that remain; null: all of them. */
    Set<String> remaining;
    boolean isLookedUp;

    /** `above` are the conditions directly above the scan. Spark adds IS NOT NULL for each join, and
        files with only nulls have no keys anyway. */
    Scan(LogicalPlan leaf, List<Expression> above) {
      this.leaf = leaf;
      conditions =
          above.stream()
              .filter(each -> each.deterministic() && !SubqueryExpression.hasSubquery(each))
              .filter(each -> !(each instanceof IsNotNull))
              .toList();
    }

    /** Whether a part of the table may be left: without conditions all keys are, except where
        partitions are cheap to compare. */
    boolean isSelective(Expression key) {
      return !keys.isEmpty() || ScanSources.hasConditions(leaf) || !conditions.isEmpty()
          || source.isPartition(Conditions.path(Casts.bare(key)));
    }
  }

  /** A key of a join: of the scan that provides values, and of the one that may lose rows in
      `pruningSide`. */
  private record Edge(
      Scan from, Expression fromKey, Scan to, Expression toKey, LogicalPlan pruningSide) {
    @Override public boolean equals(Object other) {
      return this == other;
    }

    @Override public int hashCode() {
      return System.identityHashCode(this);
    }
  }

  /** Finds the joins of a query whose keys are columns of scans. */
  private final class Finder {
    private final LogicalPlan query;
    private final Map<ExprId, Scan> scans = new HashMap<>();
    private final Map<ExprId, Integer> counts = new HashMap<>();
    private final List<Join> joins = new ArrayList<>();
    /** A command, or a plan that the rule was applied to: Spark repeats it until nothing changes, and
        applies the rest of JoinPruningRule to subqueries before. */
    private boolean isExcluded;

    Finder(LogicalPlan query) {
      this.query = query;
    }

    List<Edge> findEdges() {
      if (query.isStreaming()) return List.of();
      visit(query, List.of(), false);
      List<Edge> out = new ArrayList<>();
      if (isExcluded) return out;
      for (Join join : joins) {
        addEdges(join, true, out);
        addEdges(join, false, out);
      }
      return out;
    }

    /** `above` are the conditions directly above the plan. */
    private void visit(LogicalPlan plan, List<Expression> above, boolean isSubquery) {
      isExcluded |= plan instanceof RowLevelWrite;
      for (Expression each : ScalaInterop.asJava(plan.expressions())) visitSubqueries(each);
      if (plan instanceof Join join) joins.add(join);
      if (plan.children().isEmpty()) {
        isExcluded |= ScanSources.isOfCommand(plan);
        if (!ScanSources.isScan(plan) || plan.output().isEmpty()) return;
        counts.merge(id(plan), 1, Integer::sum);
        scans.put(id(plan), new Scan(plan, above));
        return;
      }
      List<Expression> conditions =
          plan instanceof Filter filter ? Conditions.conjuncts(filter.condition()) : List.of();
      isExcluded |= conditions.stream().anyMatch(StaticKeys::isOne);
      isExcluded |= !isSubquery && conditions.stream().anyMatch(context.registry()::isRegistered);
      for (LogicalPlan child : ScalaInterop.asJava(plan.children())) {
        visit(child, conditions, isSubquery);
      }
    }

    /** Visit the plans of subqueries. Those of dynamic filters repeat a side of a join. */
    private void visitSubqueries(Expression expression) {
      if (!expression.containsPattern(TreePattern$.MODULE$.PLAN_EXPRESSION())
          || expression instanceof DynamicPruningSubquery
          || expression instanceof BloomFilterMightContain) {
        return;
      }
      if (expression instanceof SubqueryExpression subquery) {
        visit(subquery.plan(), List.of(), true);
      }
      ScalaInterop.asJava(expression.children()).forEach(this::visitSubqueries);
    }

    private void addEdges(Join join, boolean isLeft, List<Edge> out) {
      boolean canLose =
          JoinTypes.canLose(join.joinType(), isLeft)
              && (join.condition().isEmpty() || join.condition().get().deterministic());
      if (!canLose) return;
      LogicalPlan pruningSide = isLeft ? join.left() : join.right();
      LogicalPlan filteringSide = isLeft ? join.right() : join.left();
      EquiKeys keys = EquiKeys.of(join);
      for (int i = 0; i < keys.left().size(); i++) {
        Column to = find(pruningSide, keys.of(isLeft).get(i), true);
        Column from = to == null ? null : find(filteringSide, keys.of(!isLeft).get(i), false);
        if (from == null || !canProvide(from) || !canPrune(to)) continue;
        out.add(new Edge(from.scan, from.key, to.scan, to.key, pruningSide));
      }
    }

    private boolean canProvide(Column column) {
      if (!isUsable(column) || !ScanSources.isSnapshot(column.scan.leaf)) return false;
      List<String> path = Conditions.path(Casts.bare(column.key));
      return column.scan.source.isPartition(path) || column.scan.source.hasStatistics(path);
    }

    private boolean canPrune(Column column) {
      return isUsable(column)
          && (context.statistics().know(column.scan.source, column.key)
              || context.statistics().isIndexed(column.scan.source, column.key));
    }

    /** Whether a key is a column of a scan that the query has once: the same scan elsewhere would
        lose the same files. */
    private boolean isUsable(Column column) {
      Scan scan = column.scan;
      if (counts.get(id(scan.leaf)) > 1 || Conditions.path(Casts.bare(column.key)) == null) {
        return false;
      }
      if (scan.source == null) scan.source = ScanSources.of(scan.leaf, context.client());
      return scan.source != null;
    }

    /**
     * Return the scan that a key of a plan comes from, with the key in terms of it; null if there is
     * none, or the key is computed on the way.
     *
     * <p>The values of a column are among those of the scan, and null, whatever is in between. But
     * rows may only be lost at the scan (`loses`) if they have no other effect on the way.
     */
    private Column find(LogicalPlan plan, Expression key, boolean loses) {
      if (key.references().isEmpty()) return null;
      if (ScanSources.isScan(plan)) {
        Scan scan = plan.output().isEmpty() ? null : scans.get(id(plan));
        return scan == null ? null : new Column(scan, key);
      }
      Expression below = key;
      if (plan instanceof Project project) {
        below = KeyPushdown.mapKey(key, ScalaInterop.asJava(project.projectList()));
      } else if (plan instanceof Aggregate aggregate) {
        below = KeyPushdown.mapKey(key, ScalaInterop.asJava(aggregate.aggregateExpressions()));
      }
      if (loses && !passes(plan, below)) return null;
      // The columns of a union have the ids of those of its first child.
      if (plan.children().size() > 1 && !(plan instanceof Join)) return null;
      for (LogicalPlan child : ScalaInterop.asJava(plan.children())) {
        if (below.references().subsetOf(child.outputSet())) return find(child, below, loses);
      }
      return null;
    }

    /** Whether a plan only loses rows with a key if the rows below do. */
    private static boolean passes(LogicalPlan plan, Expression key) {
      if (plan instanceof Project || plan instanceof Filter) return plan.deterministic();
      if (plan instanceof Aggregate aggregate) {
        return KeyPushdown.isIn(aggregate.groupingExpressions(), key);
      }
      if (plan instanceof Join join) {
        boolean isLeft = key.references().subsetOf(join.left().outputSet());
        return plan.deterministic() && JoinTypes.passes(join.joinType(), isLeft);
      }
      return KeyPushdown.passes(plan, key);
    }
  }

  /** A key in terms of a scan. */
  private record Column(Scan scan, Expression key) {}

  /** Finds the keys, in a thread of this project. It may be late, so it changes no plan. */
  private static final class Solver extends scala.runtime.AbstractFunction0<Void> {
    private final PruningContext context;
    private final SparkContext spark = SparkSession.active().sparkContext();
    private final String tag = "skipping-metadata-" + UUID.randomUUID();
    private final List<Edge> edges;
    private final ReuseAnalysis copies;
    private final Map<Edge, KeyValues> compared = new HashMap<>();
    private final Map<Edge, Exception> failures = new ConcurrentHashMap<>();
    private volatile boolean isStopped;

    Solver(PruningContext context, List<Edge> edges, ReuseAnalysis copies) {
      this.context = context;
      this.edges = edges;
      this.copies = copies;
    }

    @Override public Void apply() {
      // Not the query's time, which goes on if this is late.
      spark.setLocalProperty(SQLExecution.EXECUTION_ID_KEY(), null);
      spark.addJobTag(tag);
      context.client().budgets().hold();
      try {
        boolean isChanged = true;
        for (int round = 0; round < MAX_ROUNDS && isChanged; round++) {
          isChanged = false;
          for (Edge edge : edges) isChanged |= !isStopped && tryPrune(edge);
        }
      } finally {
        context.client().budgets().release();
        spark.removeJobTag(tag);
      }
      return null;
    }

    private boolean tryPrune(Edge edge) {
      if (failures.containsKey(edge)) return false;
      try {
        return prune(edge);
      } catch (Exception failure) {
        failures.put(edge, failure);
        return false;
      }
    }

    /** End a thread that is late: what it has found stays. */
    void stop() {
      isStopped = true;
      spark.cancelJobsWithTag(tag);
    }

    Map<ExprId, Expression> findConditions() {
      Map<ExprId, Expression> out = new HashMap<>();
      for (Edge edge : edges) {
        List<Expression> keys =
            edge.to.keys.values().stream().map(StaticKeys::toCondition).toList();
        if (!keys.isEmpty()) out.put(id(edge.to.leaf), Conditions.conjunction(keys));
      }
      return out;
    }

    /** Compare the files of one scan with the keys of another; whether it loses files. */
    private boolean prune(Edge edge) throws Exception {
      if (!edge.from.isSelective(edge.fromKey)) return false;
      if (isLarge(edge.from) || isLarge(edge.to)) return false;
      KeyValues keys = findKeys(edge);
      if (keys == null || keys.equals(compared.put(edge, keys))) return false;
      Set<String> prunable = context.statistics().findPrunable(edge.to.source, keys);
      if (prunable.isEmpty()) return false;
      Set<String> before = remaining(edge.to);
      Set<String> fewer = new HashSet<>(before == null ? edge.to.source.locations() : before);
      if (!fewer.removeAll(prunable)) return false;
      // Spark reads equal parts of a query once; with keys, each of them.
      int count = copies.count(edge.pruningSide);
      if (count > 1 && fewer.size() * count > edge.to.source.files()) return false;
      Map<Edge, KeyValues> all = new LinkedHashMap<>(edge.to.keys);
      all.put(edge, keys);
      edge.to.keys = Collections.unmodifiableMap(all);
      edge.to.remaining = fewer;
      return true;
    }

    /** Whether comparing all files of a table costs more than a query should wait for its plan. */
    private static boolean isLarge(Scan scan) {
      return scan.source.files() > TableStatistics.MAX_FILES;
    }

    /** Return the locations of the files that remain of a scan; null: all of them. */
    private Set<String> remaining(Scan scan) throws Exception {
      if (!scan.isLookedUp && !scan.conditions.isEmpty()) {
        Set<String> prunable =
            context.statistics()
                .findPrunable(scan.source, scan.conditions, List.of(), List.of());
        if (!prunable.isEmpty()) {
          scan.remaining = new HashSet<>(scan.source.locations());
          scan.remaining.removeAll(prunable);
        }
      }
      scan.isLookedUp = true;
      return scan.remaining;
    }

    /** Return the keys that the remaining files of a scan may have; null if that is unknown. */
    private KeyValues findKeys(Edge edge) throws Exception {
      Expression column = Casts.bare(edge.fromKey);
      KeyRanges known =
          context.statistics()
              .findRanges(edge.from.source, column, remaining(edge.from));
      if (known == null) return null;
      List<Object> mins = new ArrayList<>();
      List<Object> maxs = new ArrayList<>();
      for (Range range : known.ranges()) {
        Object min = widen(edge.fromKey, column, range.min());
        Object max = widen(edge.fromKey, column, range.max());
        if (min == null || max == null) return null;
        mins.add(min);
        maxs.add(max);
      }
      KeyRanges all = KeyRanges.of(edge.toKey.dataType(), mins, maxs);
      boolean areValues = all.ranges().stream().allMatch(Range::isSingle);
      return new KeyValues.Of(
          edge.toKey, areValues ? all.from() : null, areValues ? null : all,
          "the metadata of " + PlanNames.tables(edge.from.leaf));
    }

    /** Return a value of a column as the key has it, in a wider type. */
    private static Object widen(Expression key, Expression column, Object value) {
      return replace(key, column, new Literal(value, column.dataType())).eval(null);
    }

    private static Expression replace(Expression key, Expression column, Literal value) {
      if (key == column) return value;
      Expression child = replace(key.children().head(), column, value);
      return key.withNewChildren(ScalaInterop.asScala(List.of(child)));
    }
  }
}
