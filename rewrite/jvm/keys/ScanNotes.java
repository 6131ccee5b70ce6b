package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage;
import rewrite.jvm.bridge.ScalaInterop;

/** Notes on scans for explain and ANALYZE. A logical scan has the reasons why it got no keys of a
    join, and the keys that it might get; a physical scan why it is not pruned, and its
    predicates. */
public final class ScanNotes {
  private static final TreeNodeTag<List<String>> REASONS = new TreeNodeTag<>("rewrite.reasons");
  private static final TreeNodeTag<List<JoinKey>> KEYS = new TreeNodeTag<>("rewrite.keys");
  private static final TreeNodeTag<String> UNPRUNED = new TreeNodeTag<>("rewrite.unpruned");
  private static final TreeNodeTag<Predicates> PREDICATES = new TreeNodeTag<>("rewrite.asked");
  private static final int MAX_KEYS = 16;

  private ScanNotes() {}

  private record JoinKey(Object join, Expression key) {}

  /** The predicates of a scan of a table, as AskedLeaves describes them. */
  public record Predicates(String table, List<Map<String, Object>> entries) {}

  /** Note that a join has keys of an expression over a scan; once, for the first of several joins.
      `join` stands for the join. */
  public static void addKey(LogicalPlan scan, Object join, Expression key) {
    List<JoinKey> keys = read(scan, KEYS);
    boolean isNoted = keys.stream().anyMatch(noted -> noted.key.semanticEquals(key));
    if (!isNoted && keys.size() < MAX_KEYS) append(scan, KEYS, new JoinKey(join, key));
  }

  /** Return the expressions over a scan that joins have keys of: a list for each join. */
  public static List<List<Expression>> keys(SparkPlan scan) {
    Map<Object, List<Expression>> joins = new LinkedHashMap<>();
    for (JoinKey key : readAll(scan, KEYS)) {
      joins.computeIfAbsent(key.join, join -> new ArrayList<>()).add(key.key);
    }
    return new ArrayList<>(joins.values());
  }

  /** Note the table and the predicates of a scan. */
  public static void setPredicates(
      SparkPlan scan, String table, List<Map<String, Object>> entries) {
    scan.setTagValue(PREDICATES, new Predicates(table, entries));
  }

  /** Return the table and the predicates of a scan; null if they were not noted. */
  public static Predicates predicates(SparkPlan scan) {
    return ScalaInterop.orNull(scan.getTagValue(PREDICATES));
  }

  /** Note why no index is used for a scan, when that is decided. */
  public static SparkPlan setUnprunedReason(SparkPlan scan, String reason) {
    scan.setTagValue(UNPRUNED, reason);
    return scan;
  }

  /** Return why no index was used for a scan. */
  public static String unprunedReason(SparkPlan scan) {
    String reason = ScalaInterop.orNull(scan.getTagValue(UNPRUNED));
    return reason == null ? "the session that planned it skips no files" : reason;
  }

  /** Note a reason, once. */
  public static void add(LogicalPlan scan, String reason) {
    if (!read(scan, REASONS).contains(reason)) append(scan, REASONS, reason);
  }

  /** Note a reason on the logical scan of a physical one. */
  public static void add(SparkPlan scan, String reason) {
    leaves(scan).forEach(leaf -> add(leaf, reason));
  }

  /** Return the leaves of the logical plan that a physical one was planned from. */
  public static List<LogicalPlan> leaves(SparkPlan scan) {
    List<LogicalPlan> out = new ArrayList<>();
    if (scan.logicalLink().isDefined()) addLeaves(scan.logicalLink().get(), out);
    return out;
  }

  private static void addLeaves(LogicalPlan plan, List<LogicalPlan> out) {
    for (LogicalPlan leaf : ScalaInterop.asJava(plan.collectLeaves())) {
      // Adaptive execution plans again with a leaf in place of what a stage computes.
      if (leaf instanceof LogicalQueryStage stage) addLeaves(stage.logicalPlan(), out);
      else out.add(leaf);
    }
  }

  /** Return the reasons of the logical scan of a physical one. */
  public static List<String> of(SparkPlan scan) {
    return readAll(scan, REASONS);
  }

  private static <T> List<T> read(LogicalPlan leaf, TreeNodeTag<List<T>> tag) {
    List<T> noted = ScalaInterop.orNull(leaf.getTagValue(tag));
    return noted == null ? List.of() : noted;
  }

  private static <T> List<T> readAll(SparkPlan scan, TreeNodeTag<List<T>> tag) {
    return leaves(scan).stream().flatMap(leaf -> read(leaf, tag).stream()).toList();
  }

  /** Copies of a plan have the same list, so that a longer list is a new one. */
  private static <T> void append(LogicalPlan leaf, TreeNodeTag<List<T>> tag, T note) {
    List<T> notes = new ArrayList<>(read(leaf, tag));
    notes.add(note);
    leaf.setTagValue(tag, notes);
  }
}
