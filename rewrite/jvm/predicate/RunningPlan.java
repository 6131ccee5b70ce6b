package rewrite.jvm.predicate;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.ScalarSubquery;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.columnar.InMemoryTableScanExec;
import rewrite.jvm.bridge.ScalaInterop;

/** The plan that the calling thread executes. */
public final class RunningPlan {
  private RunningPlan() {}

  /** Returns the plan; null if the thread executes none. */
  public static SparkPlan get() {
    String id = SparkContext.getOrCreate().getLocalProperty("spark.sql.execution.id");
    QueryExecution running = id == null ? null : SQLExecution.getQueryExecution(Long.parseLong(id));
    return running == null ? null : running.executedPlan();
  }

  /** Returns its scalar subqueries by their ids, as Spark computes them: it may have replaced one by
      an equal one after the rules saw the plan. */
  public static Map<ExprId, ScalarSubquery> subqueries() {
    Map<ExprId, ScalarSubquery> out = new HashMap<>();
    SparkPlan plan = get();
    if (plan != null) addSubqueries(plan, out);
    return out;
  }

  private static void addSubqueries(SparkPlan plan, Map<ExprId, ScalarSubquery> into) {
    ScalaInterop.asJava(plan.expressions()).forEach(e -> addSubqueries(e, into));
    ScalaInterop.asJava(plan.children()).forEach(child -> addSubqueries(child, into));
    ScalaInterop.asJava(plan.subqueries()).forEach(child -> addSubqueries(child, into));
    if (plan instanceof InMemoryTableScanExec scan) {
      addSubqueries(scan.relation().cachedPlan(), into);
    } else if (plan instanceof AdaptiveSparkPlanExec adaptive) {
      addSubqueries(adaptive.executedPlan(), into);
    } else if (plan instanceof QueryStageExec stage) {
      addSubqueries(stage.plan(), into);
    }
  }

  private static void addSubqueries(Expression e, Map<ExprId, ScalarSubquery> into) {
    if (e instanceof ScalarSubquery subquery) into.putIfAbsent(subquery.exprId(), subquery);
    ScalaInterop.asJava(e.children()).forEach(child -> addSubqueries(child, into));
  }
}
