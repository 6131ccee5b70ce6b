package rewrite.jvm.keys;

import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveExecutionContext;
import org.apache.spark.sql.execution.adaptive.ExchangeQueryStageExec;
import org.apache.spark.sql.execution.adaptive.ShuffleQueryStageExec;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * The stages of adaptive execution for equal exchanges of one query.
 *
 * <p>Adaptive execution computes equal exchanges once, but compares them after their scans were
 * pruned: scans that an order prunes are never equal.
 */
final class EqualStages {
  private EqualStages() {}

  /** Let an exchange, and those equal to it, be the stage that has begun for one of them, and return
      it; null if none has begun, or several have. */
  static ExchangeQueryStageExec unite(AdaptiveExecutionContext context, SparkPlan exchange) {
    SparkPlan form = exchange.canonicalized();
    ExchangeQueryStageExec found = null;
    for (ExchangeQueryStageExec stage : ScalaInterop.asJava(context.stageCache().values())) {
      if (!stage.canonicalized().equals(form)) continue;
      if (found != null && found.plan() != stage.plan()) return null;
      found = stage;
    }
    // Adaptive execution looks an exchange up in this form before it makes a stage of it.
    if (found != null) context.stageCache().putIfAbsent(form, found);
    return found;
  }

  /**
   * Let the query take a finished stage for one that runs.
   *
   * <p>Adaptive execution plans the query anew when a stage ends, but without the stages that it
   * found finished: it may broadcast the other side of the join, and compute this one again.
   */
  static void restart(
      AdaptiveExecutionContext context, SparkPlan exchange, ShuffleQueryStageExec stage) {
    context.stageCache().put(
        exchange.canonicalized(),
        new ShuffleQueryStageExec(stage.id(), stage.plan(), stage._canonicalized()));
  }
}
