package rewrite.jvm.join;

import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.BROADCAST$;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.internal.SQLConf$;
import rewrite.jvm.bridge.ScalaInterop;

/** What Spark's estimates say of a logical plan. */
final class PlanSize {
  private PlanSize() {}

  /** Bytes of all that a plan reads. Estimates of joins are products, and of no use here. */
  static scala.math.BigInt bytes(LogicalPlan plan) {
    scala.math.BigInt sum = scala.math.BigInt.apply(0);
    List leaves = ScalaInterop.asJava(plan.collectLeaves());
    for (int i = 0; i < leaves.size(); i++) {
      sum = sum.$plus(((LogicalPlan) leaves.get(i)).stats().sizeInBytes());
    }
    return sum;
  }

  /** Whether Spark is going to broadcast a plan, by its size. */
  static boolean isBroadcast(LogicalPlan plan) {
    scala.math.BigInt most =
        scala.math.BigInt.apply(SQLConf$.MODULE$.get().autoBroadcastJoinThreshold());
    return plan.stats().sizeInBytes().compareTo(most) <= 0;
  }

  /** Whether the query says that one side of a join is to be broadcast. */
  static boolean isHinted(Join join, boolean left) {
    scala.Option hint = left ? join.hint().leftHint() : join.hint().rightHint();
    if (hint.isEmpty()) return false;
    scala.Option strategy = ((HintInfo) hint.get()).strategy();
    return strategy.isDefined() && strategy.get() == BROADCAST$.MODULE$;
  }

  /** Whether rows of a plan are likely to come out of a shuffle. */
  static boolean isShuffled(LogicalPlan plan) {
    if (plan instanceof Join) {
      Join join = (Join) plan;
      return !isBroadcast(join.left()) && !isBroadcast(join.right());
    }
    return plan instanceof Aggregate || plan instanceof Window;
  }
}
