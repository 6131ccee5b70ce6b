package rewrite.jvm.scan;

import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.source.ReportedScan;

/**
 * Puts a connector's own scan back where ScanSizeRule reported its size, before Spark plans it. So
 * physical plans, and native engines, have the scans that they would have without this project.
 */
public final class OwnScanStrategy extends SparkStrategy {
  /** Returns the function for `injectPlannerStrategy`. */
  public scala.Function1<SparkSession, SparkStrategy> inject() {
    SparkStrategy strategy = this;
    return session -> strategy;
  }

  @Override public scala.collection.immutable.List<SparkPlan> apply(LogicalPlan plan) {
    try {
      LogicalPlan leaf = plan;
      while (leaf instanceof Project || leaf instanceof Filter) leaf = leaf.children().head();
      if (ReportedScan.isIn(leaf)) {
        LogicalPlan own = plan.transformUp(ScalaInterop.transformation(ReportedScan::restore));
        return ScalaInterop.asScala(List.of(planLater(own)));
      }
    } catch (Throwable failure) {
      Failures.forgive(failure); // then Spark plans the proxy, which reads the same
    }
    return ScalaInterop.asScala(List.of());
  }
}
