package rewrite.jvm.scan;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.BatchScans;
import scala.collection.Seq;

/**
 * The nodes of DataFusion Comet in a physical plan, by the names of their classes.
 *
 * <p>Comet replaces Spark's nodes before FilePruningRule sees them, and each of its nodes has the
 * one that it replaced. Its native scan of an Iceberg table lists files through that BatchScanExec,
 * when the scan runs. So a scan with another BatchScanExec reads other files, and stays native.
 */
final class CometNodes {
  private static final String PACKAGE = "org.apache.spark.sql.comet.";
  private static final String SCAN = PACKAGE + "CometIcebergNativeScanExec";
  private static final String FILTER = PACKAGE + "CometFilterExec";
  private static final Map<PrunedBatchScan, Integer> NUMBERS =
      Collections.synchronizedMap(new WeakHashMap<>());
  private static final AtomicInteger LAST_NUMBER = new AtomicInteger();

  private CometNodes() {}

  /** Returns the node that a node of Comet replaced; other nodes are returned unchanged. */
  static SparkPlan original(SparkPlan node) {
    if (!node.getClass().getName().startsWith(PACKAGE)) return node;
    try {
      return call(node, "originalPlan") instanceof SparkPlan original ? original : node;
    } catch (Throwable other) {
      Failures.passOn(other);
      return node; // this node of Comet replaces none
    }
  }

  /** Returns the condition of a filter of Spark or Comet; null for another node. Subqueries in the
      condition of the node that Comet replaced may never get their values. */
  static Expression condition(SparkPlan node) {
    if (node instanceof FilterExec filter) return filter.condition();
    if (!node.getClass().getName().equals(FILTER)) return null;
    try {
      return (Expression) call(node, "condition");
    } catch (Throwable other) {
      Failures.passOn(other);
      return null; // another release of Comet
    }
  }

  /** Returns the BatchScanExec that a native scan of an Iceberg table lists its files with; null if
      the node is not such a scan. Comet gives it the runtime filters of its own node. */
  @SuppressWarnings("unchecked") // the type of the field
  static BatchScanExec scan(SparkPlan node) {
    if (!node.getClass().getName().equals(SCAN)) return null;
    try {
      BatchScanExec scan = (BatchScanExec) call(node, "originalPlan");
      List<Expression> filters =
          ScalaInterop.asJava((Seq<Expression>) call(node, "runtimeFilters"));
      return ScalaInterop.asJava(scan.runtimeFilters()).equals(filters)
          ? scan
          : BatchScans.copy(scan, scan.scan(), ScalaInterop.asScala(filters));
    } catch (Throwable other) {
      Failures.passOn(other);
      return null; // another release of Comet
    }
  }

  /**
   * Returns a native scan that lists its files with another BatchScanExec.
   *
   * <p>Comet compares its scans by the location of the table's metadata and the runtime filters,
   * not by the files, so the location gets a number for the pruned files. A message to the native
   * code has the location that Comet wrote into it before.
   */
  static SparkPlan replace(SparkPlan node, BatchScanExec scan) {
    try {
      // Before 1.2, Comet cannot distinguish two scans of a table in one native plan.
      call(node, "nativeOp").getClass().getMethod("getPlanId");
      Object location = call(node, "metadataLocation");
      Object filters = call(node, "runtimeFilters");
      Class<?>[] types = node.getClass().getConstructors()[0].getParameterTypes();
      Object[] values = new Object[node.productArity()];
      for (int i = 0; i < values.length; i++) {
        Object value = node.productElement(i);
        // The output, which may be the same empty list, comes before the runtime filters.
        boolean isFilters = value == filters && types[i] == types[i - 1];
        values[i] = types[i] == BatchScanExec.class ? scan
            : isFilters ? scan.runtimeFilters()
            : value == location ? location + " " + number((PrunedBatchScan) scan.scan())
            : value;
      }
      return node.makeCopy(values);
    } catch (ReflectiveOperationException missing) {
      throw new IllegalStateException("it needs Comet 1.2 or newer", missing);
    }
  }

  /** Returns a number that equal scans share. */
  private static int number(PrunedBatchScan scan) {
    return NUMBERS.computeIfAbsent(scan, other -> LAST_NUMBER.incrementAndGet());
  }

  /** Returns a plan with the nodes that Comet replaced, down to the next exchanges. */
  static SparkPlan asSpark(SparkPlan plan) {
    if (plan instanceof Exchange || plan instanceof QueryStageExec) return plan;
    SparkPlan node = original(plan);
    List<SparkPlan> children = ScalaInterop.asJava(plan.children());
    if (node.children().size() != children.size()) return plan;
    boolean isSame = node == plan;
    for (int i = 0; i < children.size(); i++) {
      SparkPlan child = asSpark(children.get(i));
      isSame &= child == children.set(i, child);
    }
    return isSame ? plan : node.withNewChildren(ScalaInterop.asScala(children));
  }

  private static Object call(SparkPlan node, String method) throws ReflectiveOperationException {
    return node.getClass().getMethod(method).invoke(node);
  }
}
