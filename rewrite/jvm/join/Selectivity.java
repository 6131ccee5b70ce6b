package rewrite.jvm.join;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.StaticKeys;
import rewrite.jvm.source.ScanSources;

/** Whether a plan probably returns few of the keys of its tables, because it has a condition. */
final class Selectivity {
  private Selectivity() {}

  static boolean isSelective(LogicalPlan plan) {
    if (plan instanceof LocalRelation || Repeatability.isLimit(plan)) return true;
    if (plan.isStreaming() && plan.children().isEmpty()) return true; // a batch is a part
    if (ScanSources.hasConditions(plan)) return true;
    if (plan instanceof Filter filter
        && Conditions.conjuncts(filter.condition()).stream()
            .anyMatch(each -> !Filters.isDynamic(each) && !(each instanceof IsNotNull)
                        && !StaticKeys.isOne(each))) {
      return true;
    }
    List<LogicalPlan> children = Repeatability.children(plan);
    return plan instanceof Union
        ? children.stream().allMatch(Selectivity::isSelective)
        : children.stream().anyMatch(Selectivity::isSelective);
  }
}
