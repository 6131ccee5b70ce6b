package rewrite.jvm.scan;

import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.RowLevelWrite;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.plans.logical.Subquery;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.PlanSubqueries;
import rewrite.jvm.source.PlannedLookup;
import rewrite.jvm.source.ReportedSize;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.ScanSources;
import rewrite.jvm.source.TableStatistics;

/**
 * Reports to Spark's optimizer how much of a scan the index leaves, because Spark chooses
 * broadcasts, build sides and, with CBO, the order of joins by it.
 *
 * <pre>
 *   before                        after
 *   Filter k = 7                  Filter k = 7
 *   +- Relation f (1,588 KiB)     +- Relation f (80 KiB)
 * </pre>
 *
 * <p>Only the estimate changes: the scan still lists all files, and FilePruningRule prunes it. Runs
 * before Spark orders joins, and again after all rules, because conditions may have arrived. The
 * scans of connectors do not exist before joins are ordered.
 */
public final class ScanSizeRule extends Rule<LogicalPlan> {
  /** A scan in the steps of a recursive query, which share Iceberg's scan object. If Spark broadcasts,
      its partition filter for one step may remove files from this object that the next step needs. */
  private static final TreeNodeTag<Boolean> SHARED = new TreeNodeTag<>("rewrite.shared");

  private final IndexClient client;
  private final TableStatistics statistics;
  private final boolean isFirst;

  /** `isFirst`: no other rule looks up before this one in a plan. */
  public ScanSizeRule(IndexClient client, TableStatistics statistics, boolean isFirst) {
    this.client = client;
    this.statistics = statistics;
    this.isFirst = isFirst;
  }

  @Override public String ruleName() {
    return "rewrite.ScanSizeRule";
  }

  /** Returns the function for `injectPreCBORule`. */
  public scala.Function1<SparkSession, Rule<LogicalPlan>> inject() {
    Rule<LogicalPlan> rule = this;
    return session -> rule;
  }

  @Override public LogicalPlan apply(LogicalPlan plan) {
    try {
      markSteps(plan);
      // Spark calls the rule for a subquery's plan first, and then for the plan that it is in.
      if (plan instanceof Subquery || !client.isOn() || !SkippingConf.reportsSize()) return plan;
      if (isFirst) client.beginPlan();
      boolean isOfCommand =
          plan.isStreaming()
              || ScalaInterop.asJava(plan.collectLeaves()).stream()
                  .anyMatch(ScanSources::isOfCommand);
      return isOfCommand ? plan : visit(plan);
    } catch (Throwable failure) {
      Failures.forgive(failure); // then Spark has its own estimates
      return plan;
    }
  }

  /** Any plan: Spark calls this rule for each step with a plan of its own, even if the whole is a
      command or a stream, whose scans report nothing, or was planned before a setting changed. */
  private static void markSteps(LogicalPlan plan) {
    PlanSubqueries.nodes(plan).stream()
        .filter(ScanSources::isRecursion)
        .flatMap(recursion -> PlanSubqueries.nodes(recursion).stream())
        .filter(DataSourceV2ScanRelation.class::isInstance)
        .forEach(leaf -> leaf.setTagValue(SHARED, true));
  }

  private LogicalPlan visit(LogicalPlan plan) {
    if (plan instanceof RowLevelWrite || ScanSources.isRecursion(plan)) return plan;
    LogicalPlan now = PlanSubqueries.transform(plan, this::visit);
    if (now instanceof Filter filter && ScanSources.isScan(filter.child())) {
      return filter.mapChildren(leaf -> report(leaf, Conditions.conjuncts(filter.condition())));
    }
    return ScanSources.isScan(now)
        ? ReportedSize.restore(now, client)
        : now.mapChildren(this::visit);
  }

  /** Returns a scan that reports what its conditions leave. Spark may have merged or removed
      conditions since an earlier report. */
  private LogicalPlan report(LogicalPlan leaf, List<Expression> above) {
    List<Expression> conditions = PlannedLookup.takeKnown(leaf, above);
    ScanSource source =
        PlannedLookup.haveValues(conditions) ? ScanSources.of(leaf, client) : null;
    boolean isShared = leaf.getTagValue(SHARED).isDefined();
    if (source == null || isShared || !client.hasIndex(source.table())) {
      return ReportedSize.restore(leaf, client);
    }
    double remaining =
        PlannedLookup.computeRemaining(leaf, source, statistics, client, conditions);
    LogicalPlan original = ReportedSize.restore(leaf, client);
    double expected = remaining == 1 ? 1 : estimateSelectivity(original, conditions);
    double fraction = expected <= remaining ? 1 : remaining / expected;
    if (fraction == 1) return original;
    if (fraction == ReportedSize.fraction(leaf)) return leaf;
    Set<String> conditioned =
        conditions.stream()
            .flatMap(each -> ScalaInterop.asJava(each.references().toSeq()).stream())
            .map(NamedExpression::name)
            .collect(Collectors.toSet());
    return ReportedSize.report(original, source, fraction, conditioned);
  }

  /**
   * Returns the fraction of the rows that Spark itself expects to meet the conditions; 1 if it
   * expects nothing.
   *
   * <p>With CBO, Spark applies it to what the scan reports. The conditions are those that left the
   * files, so both together must not give fewer rows than the files have.
   */
  private static double estimateSelectivity(LogicalPlan leaf, List<Expression> conditions) {
    Statistics all = leaf.stats();
    Statistics some = new Filter(Conditions.conjunction(conditions), leaf).stats();
    if (all.rowCount().isEmpty() || some.rowCount().isEmpty()) return 1;
    double rows = all.rowCount().get().doubleValue();
    return rows == 0 ? 1 : some.rowCount().get().doubleValue() / rows;
  }
}
