package rewrite.jvm.join;

import java.math.BigInteger;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.BROADCAST$;
import org.apache.spark.sql.catalyst.plans.logical.HintInfo;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.execution.ExternalRDD;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.jdbc.JDBCRelation;
import org.apache.spark.sql.internal.SQLConf$;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.source.ReportedSize;

/** Spark's estimates of a logical plan. */
final class PlanSize {
  private PlanSize() {}

  /** Return the bytes of all tables of a plan. Spark's estimate of a join is a product, and useless
      here. */
  static BigInteger bytes(LogicalPlan plan) {
    return ScalaInterop.asJava(plan.collectLeaves()).stream()
        .map(ReportedSize::allBytes)
        .reduce(BigInteger.ZERO, BigInteger::add);
  }

  /** Whether a plan reads only rows of RDDs and databases, whose size Spark does not know. */
  static boolean isUnknown(LogicalPlan plan) {
    return ScalaInterop.asJava(plan.collectLeaves()).stream()
        .allMatch(
            leaf ->
                leaf instanceof LogicalRDD || leaf instanceof ExternalRDD<?>
                    || leaf instanceof LogicalRelation table
                        && table.relation() instanceof JDBCRelation);
  }

  static BigInteger estimate(LogicalPlan plan) {
    return plan.stats().sizeInBytes().bigInteger();
  }

  /** Whether Spark is going to broadcast a plan, by its size. */
  static boolean isBroadcast(LogicalPlan plan) {
    long limit = SQLConf$.MODULE$.get().autoBroadcastJoinThreshold();
    return estimate(plan).compareTo(BigInteger.valueOf(limit)) <= 0;
  }

  /** Whether a hint of the query broadcasts one side of a join. */
  static boolean isHinted(Join join, boolean isLeft) {
    HintInfo hint = ScalaInterop.orNull(isLeft ? join.hint().leftHint() : join.hint().rightHint());
    return hint != null && hint.strategy().contains(BROADCAST$.MODULE$);
  }

  /** Whether rows of a plan probably come from a shuffle. */
  static boolean isShuffled(LogicalPlan plan) {
    return plan instanceof Join join
        ? !isBroadcast(join.left()) && !isBroadcast(join.right())
        : plan instanceof Aggregate || plan instanceof Window;
  }
}
