package rewrite.jvm.join;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.LookupResponse;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.StaticKeys;
import rewrite.jvm.source.FileCounter;
import rewrite.jvm.source.PlannedLookup;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.ScanSources;
import rewrite.jvm.source.TableStatistics;

/**
 * The fraction of a table that remains after its conditions prune files, before anything is read.
 *
 * <p>Spark's size of a scan includes only the pruning of the table format: if the table is in no
 * order of the filtered column, that prunes nothing.
 */
record RemainingFraction(IndexClient client, TableStatistics statistics) {
  private static final TreeNodeTag<CachedFraction> TAG = new TreeNodeTag<>("rewrite.share");

  private record CachedFraction(List<Expression> conditions, double fraction) {}

  /** Return the fraction of the bytes of a leaf of a plan, with some conditions directly above it;
      1 if it is unknown. Each plan is looked up once, because Spark repeats rules. */
  double of(LogicalPlan leaf, List<Expression> conditions) {
    List<Expression> own = conditions.stream().filter(RemainingFraction::hasValues).toList();
    if (own.isEmpty()) return 1;
    CachedFraction known = ScalaInterop.orNull(leaf.getTagValue(TAG));
    if (known != null && known.conditions.equals(own)) return known.fraction;
    double fraction = lookUp(leaf, conditions);
    leaf.setTagValue(TAG, new CachedFraction(own, fraction));
    return fraction;
  }

  private static boolean hasValues(Expression condition) {
    return !(condition instanceof IsNotNull) && !Filters.isDynamic(condition)
        && !StaticKeys.isOne(condition)
        && !SubqueryExpression.hasSubquery(condition);
  }

  private double lookUp(LogicalPlan leaf, List<Expression> conditions) {
    try {
      ScanSource source = ScanSources.of(leaf, client);
      boolean canPrune =
          source != null
              && (client.hasIndex(source.table())
                  || statistics.concern(source, conditions, List.of()));
      if (!canPrune) return 1;
      String refusal = client.refusal(source.table(), true);
      LookupResponse response =
          refusal == null
              ? PlannedLookup.of(
                  leaf, source, statistics, client, PlannedLookup.takeKnown(leaf, conditions))
              : LookupResponse.none(refusal);
      FileCounter counter =
          new FileCounter(response, statistics.ask(source, conditions, List.of(), List.of()));
      source.findPrunable(counter);
      return counter.remainingFraction();
    } catch (Throwable failure) {
      Failures.passOn(failure);
      return 1;
    }
  }
}
