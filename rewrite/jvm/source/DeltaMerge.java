package rewrite.jvm.source;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.delta.commands.MergeIntoCommand;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.UnmatchedClauses;

/** The MERGE of Delta. Loaded only where Delta is. */
final class DeltaMerge {
  private DeltaMerge() {}

  static UnmatchedClauses unmatchedClauses(LogicalPlan command) {
    if (!(command instanceof MergeIntoCommand merge)) return null;
    LogicalPlan relation = merge.target().collectLeaves().head();
    List<Expression> conditions =
        ScalaInterop.asJava(merge.notMatchedBySourceClauses()).stream()
            .map(clause -> ScalaInterop.orNull(clause.condition()))
            .map(each -> isOf(relation, each) ? each : Literal$.MODULE$.TrueLiteral())
            .toList();
    return new UnmatchedClauses(ScalaInterop.asJava(merge.target().output()), conditions);
  }

  /** Whether a condition has only columns of the table, and none that is computed from them. */
  private static boolean isOf(LogicalPlan relation, Expression condition) {
    return condition != null && condition.references().subsetOf(relation.outputSet());
  }
}
