package rewrite.jvm.observe;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import rewrite.jvm.bridge.Json;
import rewrite.jvm.bridge.Protocol;
import rewrite.jvm.predicate.AskedLeaves;

/**
 * What scans asked in vain: conditions, without their values, of which no index pruned a file.
 * Counted by table and condition, in this driver only; those asked last are kept.
 */
public final class UnusedPredicates {
  private static final int TABLES = 256;
  private static final int CONDITIONS = 64;

  private final Map tables = new Last(TABLES);

  /** Adds what a scan that has run asked, as ScanReport describes it, of a table by its identity. */
  synchronized void add(Map scan, String table, List asked) {
    List vain = new ArrayList();
    for (int i = 0; i < asked.size(); i++) {
      if (!isAnswered((Map) asked.get(i), scan)) vain.add(asked.get(i));
    }
    if (vain.isEmpty()) return;
    Map conditions = (Map) tables.get(table);
    if (conditions == null) tables.put(table, conditions = new Last(CONDITIONS));
    for (int i = 0; i < vain.size(); i++) {
      Map leaf = (Map) vain.get(i);
      Map sums = (Map) conditions.get(leaf.get("condition"));
      if (sums == null) {
        conditions.put(leaf.get("condition"), sums = new HashMap(leaf));
        sums.remove("keys");
      }
      plus(sums, "scans", Integer.valueOf(1));
      plus(sums, "opened", scan.get("opened"));
      plus(sums, "bytes", scan.get("opened bytes"));
      plus(sums, "keys", leaf.get("keys"));
    }
  }

  private static void plus(Map sums, String name, Object more) {
    Number before = (Number) sums.get(name);
    long sum = before == null ? 0 : before.longValue();
    sums.put(name, Long.valueOf(more instanceof Number ? sum + ((Number) more).longValue() : sum));
  }

  /** Whether a leg of the index, on the same column or on some of the same columns together, and for
      the same sort of questions, pruned a file. */
  private static boolean isAnswered(Map leaf, Map scan) {
    List legs = (List) scan.get(Protocol.LEGS);
    if (legs == null) return false;
    int[] counts = (int[]) scan.get("counts");
    boolean isText = leaf.get("form").equals(AskedLeaves.TEXT);
    boolean isComposite = !((List) leaf.get("parts")).isEmpty();
    String name = leaf.get("name") + " ";
    for (int i = 0; i < legs.size(); i++) {
      String label = (String) ((Map) legs.get(i)).get(Protocol.LABEL);
      boolean isOf = isComposite ? areAmong(label, name) : label.startsWith(name);
      if (isOf && counts[i] > 0 && label.startsWith(name + "LIKE '%") == isText) return true;
    }
    return false;
  }

  /** Whether what begins with columns in parentheses, "(b, a) IN ...", has no others than `name`. */
  private static boolean areAmong(String label, String name) {
    return label.startsWith("(") && columns(name).containsAll(columns(label));
  }

  private static List columns(String label) {
    int end = label.indexOf(") ");
    return Arrays.asList(label.substring(1, end < 0 ? label.length() : end).split(", "));
  }

  /** Those of a table, as JSON: what AskedLeaves says of each, how many `scans` had it, the files
      and bytes that these opened, and the sum of their `keys`. */
  public synchronized String of(String table) {
    Map conditions = (Map) tables.get(table);
    return Json.write(conditions == null ? new ArrayList() : new ArrayList(conditions.values()));
  }

  /** A map of those that were used last. */
  private static final class Last extends LinkedHashMap {
    private static final long serialVersionUID = 1;

    private final int most;

    Last(int most) {
      super(16, 0.75f, true);
      this.most = most;
    }

    protected boolean removeEldestEntry(Map.Entry eldest) {
      return size() > most;
    }
  }
}
