package rewrite.jvm.observe;

import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import rewrite.jvm.bridge.Json;
import rewrite.jvm.bridge.Protocol;
import rewrite.jvm.bridge.RecentMap;
import rewrite.jvm.predicate.AskedLeaves;

/**
 * Predicates of scans, without their values, by which no index pruned a file. Counted by table and
 * condition, in this driver only; those used last are kept.
 */
public final class UnusedPredicates {
  private static final int TABLES = 256;
  private static final int CONDITIONS = 64;

  private final Map<String, Map<String, Map<String, Object>>> tables = new RecentMap<>(TABLES);

  /** Adds the predicates of a scan that has run, as ScanReport describes it, by table identity. */
  synchronized void add(
      Map<String, Object> scan, String table, List<Map<String, Object>> predicates) {
    for (Map<String, Object> leaf : predicates) {
      if (isUsed(leaf, scan)) continue;
      Map<String, Object> sums =
          tables
              .computeIfAbsent(table, key -> new RecentMap<>(CONDITIONS))
              .computeIfAbsent(Json.text(leaf, "condition"), key -> withoutKeys(leaf));
      plus(sums, "scans", 1);
      plus(sums, "opened", scan.get("opened"));
      plus(sums, "bytes", scan.get("opened bytes"));
      plus(sums, "keys", leaf.get("keys"));
    }
  }

  private static Map<String, Object> withoutKeys(Map<String, Object> leaf) {
    Map<String, Object> out = new HashMap<>(leaf);
    out.remove("keys");
    return out;
  }

  private static void plus(Map<String, Object> sums, String name, Object more) {
    long number = more instanceof Number some ? some.longValue() : 0;
    sums.merge(name, number, (before, added) -> (Long) before + number);
  }

  /** Whether a predicate of the index, on the same column or on some of the same columns together,
      and for the same sort of conditions, pruned a file. */
  private static boolean isUsed(Map<String, Object> leaf, Map<String, Object> scan) {
    if (!(scan.get(Protocol.OPERANDS) instanceof List<?> operands)) return false;
    int[] counts = (int[]) scan.get("counts");
    boolean isText = leaf.get("form").equals(AskedLeaves.TEXT);
    boolean isComposite = !((Collection<?>) leaf.get("parts")).isEmpty();
    String name = leaf.get("name") + " ";
    for (int i = 0; i < operands.size(); i++) {
      String label = (String) ((Map<?, ?>) operands.get(i)).get(Protocol.LABEL);
      boolean isOf = isComposite ? areAmong(label, name) : label.startsWith(name);
      if (isOf && counts[i] > 0 && label.startsWith(name + "LIKE '%") == isText) return true;
    }
    return false;
  }

  /** Whether what begins with columns in parentheses, "(b, a) IN ...", has no others than `name`. */
  private static boolean areAmong(String label, String name) {
    return label.startsWith("(") && columns(name).containsAll(columns(label));
  }

  private static List<String> columns(String label) {
    int end = label.indexOf(") ");
    return Arrays.asList(label.substring(1, end < 0 ? label.length() : end).split(", "));
  }

  /** Returns those of a table, as JSON: what AskedLeaves has of each, how many `scans` had it, the
      files and bytes that these opened, and the sum of their `keys`. */
  public synchronized String of(String table) {
    Map<String, ?> conditions = tables.get(table);
    return Json.write(conditions == null ? List.of() : conditions.values());
  }
}
