package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.SparkPlan;
import rewrite.jvm.bridge.ScalaInterop;

/** Why a scan got no keys of a join, and which it might have, kept on the logical scan; why it is
    not pruned at all, and what it asks, kept on the physical one. For explain, and ANALYZE. */
public final class ScanNotes {
  private static final TreeNodeTag TAG = new TreeNodeTag("rewrite.reasons");
  private static final TreeNodeTag UNPRUNED = new TreeNodeTag("rewrite.unpruned");

  private static final TreeNodeTag KEYS = new TreeNodeTag("rewrite.keys");
  private static final TreeNodeTag ASKED = new TreeNodeTag("rewrite.asked");
  private static final int MOST_KEYS = 16;

  private ScanNotes() {}

  /** Notes that a join, which `join` stands for, has keys of an expression over a scan; once, for
      the first of several. */
  public static void addKey(LogicalPlan scan, Object join, Expression key) {
    scala.Option there = scan.getTagValue(KEYS);
    List keys = there.isDefined() ? new ArrayList((List) there.get()) : new ArrayList();
    for (int i = 0; i < keys.size(); i++) {
      if (((Expression) ((Object[]) keys.get(i))[1]).semanticEquals(key)) return;
    }
    if (keys.size() == MOST_KEYS) return;
    keys.add(new Object[] {join, key});
    scan.setTagValue(KEYS, keys);
  }

  /** The expressions over a scan of which joins have keys: a list for each join. */
  public static List keys(SparkPlan scan) {
    Map joins = new LinkedHashMap();
    List keys = collected(scan, KEYS);
    for (int i = 0; i < keys.size(); i++) {
      Object[] key = (Object[]) keys.get(i);
      List of = (List) joins.get(key[0]);
      if (of == null) joins.put(key[0], of = new ArrayList());
      of.add(key[1]);
    }
    return new ArrayList(joins.values());
  }

  /** Notes of which table a scan is, and what it asks (AskedLeaves). */
  public static void asked(SparkPlan scan, String table, List leaves) {
    scan.setTagValue(ASKED, new Object[] {table, leaves});
  }

  /** The table that a scan is of, and what it asks; null: that was not noted. */
  public static Object[] asked(SparkPlan scan) {
    scala.Option there = scan.getTagValue(ASKED);
    return there.isDefined() ? (Object[]) there.get() : null;
  }

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

  /** The leaves of the logical plan that a physical one was planned from. */
  public static List leaves(SparkPlan scan) {
    return scan.logicalLink().isEmpty()
        ? new ArrayList()
        : ScalaInterop.asJava(scan.logicalLink().get().collectLeaves());
  }

  /** Those of the scan that a physical one was planned from. */
  public static List of(SparkPlan scan) {
    return collected(scan, TAG);
  }

  private static List collected(SparkPlan scan, TreeNodeTag tag) {
    List out = new ArrayList();
    List leaves = leaves(scan);
    for (int i = 0; i < leaves.size(); i++) {
      scala.Option there = ((LogicalPlan) leaves.get(i)).getTagValue(tag);
      if (there.isDefined()) out.addAll((List) there.get());
    }
    return out;
  }
}
