package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import rewrite.jvm.bridge.Answer;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.PredicateEncoder;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.ScanSources;
import rewrite.jvm.source.TableStatistics;
import rewrite.jvm.source.FileCounter;

/**
 * How much of a table its own conditions leave, as its index, and the table itself, say before
 * anything is read.
 *
 * <p>Spark's size of a scan knows only what the table format left: of a table that is in no order
 * of the column that is filtered, all of it.
 */
final class ScanShare {
  private static final TreeNodeTag TAG = new TreeNodeTag("rewrite.share");

  private final IndexClient client;
  private final TableStatistics statistics;

  ScanShare(IndexClient client, TableStatistics statistics) {
    this.client = client;
    this.statistics = statistics;
  }

  /** That of a leaf of a plan with some conditions directly above it, by bytes, from 0 to 1; 1
      where nothing is known. Asked once for each plan: Spark runs rules until nothing changes. */
  double of(LogicalPlan leaf, List conditions) {
    List own = new ArrayList();
    for (int i = 0; i < conditions.size(); i++) {
      Expression condition = (Expression) conditions.get(i);
      boolean isValue =
          !(condition instanceof IsNotNull) && Conditions.dynamic(condition) == null
              && !SubqueryExpression.hasSubquery(condition);
      if (isValue) own.add(condition);
    }
    if (own.isEmpty()) return 1;
    scala.Option known = leaf.getTagValue(TAG);
    if (known.isDefined() && ((Known) known.get()).conditions.equals(own)) {
      return ((Known) known.get()).share;
    }
    double share = ask(leaf, own);
    leaf.setTagValue(TAG, new Known(own, share));
    return share;
  }

  private double ask(LogicalPlan leaf, List conditions) {
    try {
      ScanSource read = ScanSources.of(leaf, client);
      List none = new ArrayList();
      boolean isAsked =
          read != null
              && (client.hasIndex(read.table()) || statistics.concern(read, conditions, none));
      if (!isAsked) return 1;
      String table = read.table();
      String refusal = client.refusal(table, true);
      Answer answer =
          refusal == null
              ? client.ask(
                  PredicateEncoder.question(
                      table, statistics.columns(read), conditions, none, none))
              : Answer.failed(refusal);
      FileCounter tally = new FileCounter(answer, statistics.ask(read, conditions, none, none));
      read.findPrunable(tally);
      return tally.left();
    } catch (Throwable failure) {
      Failures.passOn(failure);
      return 1;
    }
  }

  /** What some conditions leave. */
  private static final class Known {
    private final List conditions;
    private final double share;

    Known(List conditions, double share) {
      this.conditions = conditions;
      this.share = share;
    }
  }
}
