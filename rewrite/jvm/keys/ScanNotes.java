package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.SparkPlan;
import rewrite.jvm.bridge.ScalaInterop;

/** Why a scan got no keys of a join, kept on the logical scan, and why it is not pruned at all,
    kept on the physical one; for explain. */
public final class ScanNotes {
  private static final TreeNodeTag TAG = new TreeNodeTag("rewrite.reasons");
  private static final TreeNodeTag UNPRUNED = new TreeNodeTag("rewrite.unpruned");

  private ScanNotes() {}

  /** Notes why no index is asked about a scan, when that is decided. */
  public static SparkPlan unpruned(SparkPlan scan, String reason) {
    scan.setTagValue(UNPRUNED, reason);
    return scan;
  }

  /** Why no index was asked about a scan. */
  public static String unpruned(SparkPlan scan) {
    scala.Option reason = scan.getTagValue(UNPRUNED);
    return reason.isDefined()
        ? (String) reason.get()
        : "the session that planned it skips no files";
  }

  /** Adds one, once. */
  public static void add(LogicalPlan scan, String reason) {
    scala.Option there = scan.getTagValue(TAG);
    List reasons = there.isDefined() ? new ArrayList((List) there.get()) : new ArrayList();
    if (reasons.contains(reason)) return;
    reasons.add(reason);
    scan.setTagValue(TAG, reasons);
  }

  /** Adds one to the scan that a physical one was planned from. */
  public static void add(SparkPlan scan, String reason) {
    List leaves = leaves(scan);
    for (int i = 0; i < leaves.size(); i++) {
      add((LogicalPlan) leaves.get(i), reason);
    }
  }

  private static List leaves(SparkPlan scan) {
    return scan.logicalLink().isEmpty()
        ? new ArrayList()
        : ScalaInterop.list(((LogicalPlan) scan.logicalLink().get()).collectLeaves());
  }

  /** Those of the scan that a physical one was planned from. */
  public static List of(SparkPlan scan) {
    List out = new ArrayList();
    List leaves = leaves(scan);
    for (int i = 0; i < leaves.size(); i++) {
      scala.Option there = ((LogicalPlan) leaves.get(i)).getTagValue(TAG);
      if (there.isDefined()) out.addAll((List) there.get());
    }
    return out;
  }
}
