package rewrite.jvm.observe;

import java.time.Instant;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import rewrite.jvm.bridge.Json;
import rewrite.jvm.bridge.Protocol;
import rewrite.jvm.bridge.RecentMap;
import rewrite.jvm.keys.ScanNotes;
import rewrite.jvm.predicate.AskedLeaves;

/**
 * What queries read and skipped, and the predicates of their scans without the values, by day
 * (UTC), store, table and predicate. Those used last are kept; Python writes them to the store.
 */
public final class Workload {
  private static final int DAYS = 4; // of one store, or days of several
  private static final int TABLES = 256;
  private static final int PREDICATES = 64;
  private static final int LONGEST = 1000;

  private final Map<Place, Map<String, Table>> days = new RecentMap<>(DAYS);
  private long changes;

  /** A day, the setting `store` of a session, and whether it may be written there. */
  record Place(String day, String store, boolean isStored) {
    static Place of(long milliseconds, String store, boolean isStored) {
      String day = Instant.ofEpochMilli(milliseconds).atZone(ZoneOffset.UTC).toLocalDate().toString();
      return new Place(day, store, isStored);
    }
  }

  /** A scan that has run, as ScanReport describes it, with its table and predicates. */
  public record Scan(Map<String, Object> counts, ScanNotes.Predicates predicates) {
    private long number(String name) {
      return counts.get(name) instanceof Number number ? number.longValue() : 0;
    }

    /** A lower bound of the opened files without a matching row: one row is in one file. */
    private long unmatched() {
      boolean isKnown = Boolean.TRUE.equals(counts.get("drained")) && counts.containsKey("rows");
      if (!isKnown) return 0;
      Object rows = ((Object[]) counts.get("rows"))[1];
      return Math.max(0, number("opened") - ((Number) rows).longValue());
    }

    private long unmatchedBytes() {
      long opened = number("opened");
      return opened == 0 ? 0 : (long) ((double) number("opened bytes") * unmatched() / opened);
    }
  }

  /** The sums of a table and, by condition, those of its predicates. */
  private record Table(
      String name, Map<String, Long> sums, Map<String, Map<String, Object>> predicates) {}

  /** Adds the scans of one execution. */
  synchronized void add(Place place, List<Scan> scans) {
    Set<String> queried = new HashSet<>();
    Set<String> pruned = new HashSet<>();
    for (Scan scan : scans) {
      String key = scan.predicates.table();
      Table table =
          days.computeIfAbsent(place, day -> new RecentMap<>(TABLES))
              .computeIfAbsent(
                  key,
                  any ->
                      new Table(
                          Json.text(scan.counts, "table"), new HashMap<>(),
                          new RecentMap<>(PREDICATES)));
      Map<String, Long> sums = table.sums;
      if (queried.add(key)) plus(sums, "queries", 1);
      if (scan.number("pruned") > 0 && pruned.add(key)) plus(sums, "pruned_queries", 1);
      plus(sums, "files", scan.number("total"));
      plus(sums, "bytes", scan.number("bytes"));
      plus(sums, "pruned_files", scan.number("pruned"));
      plus(sums, "pruned_bytes", scan.number("pruned bytes"));
      plus(sums, "opened_files", scan.number("opened"));
      plus(sums, "opened_bytes", scan.number("opened bytes"));
      plus(sums, "unmatched_files", scan.unmatched());
      plus(sums, "unmatched_bytes", scan.unmatchedBytes());
      scan.predicates.entries().forEach(leaf -> addPredicate(table, leaf, scan));
      changes++;
    }
  }

  private static void addPredicate(Table table, Map<String, Object> leaf, Scan scan) {
    String condition = Json.text(leaf, "condition");
    if (condition.length() > LONGEST || Json.text(leaf, "sql").length() > LONGEST) return;
    Map<String, Object> entry =
        table.predicates.computeIfAbsent(condition, any -> withoutKeys(leaf));
    @SuppressWarnings("unchecked")
    Map<String, Long> sums = (Map<String, Long>) entry.get("sums");
    plus(sums, "scans", 1);
    plus(sums, "keys", leaf.get("keys") instanceof Number keys ? keys.longValue() : 0);
    int best = bestOperand(leaf, scan.counts);
    if (best < 0) {
      plus(sums, "missed_files", scan.number("opened"));
      plus(sums, "missed_bytes", scan.number("opened bytes"));
    } else {
      plus(sums, "pruned_scans", 1);
      plus(sums, "pruned_files", ((int[]) scan.counts.get("counts"))[best]);
      plus(sums, "pruned_bytes", ((long[]) scan.counts.get("counted bytes"))[best]);
    }
    plus(sums, "unmatched_files", scan.unmatched());
    plus(sums, "unmatched_bytes", scan.unmatchedBytes());
  }

  private static Map<String, Object> withoutKeys(Map<String, Object> leaf) {
    Map<String, Object> out = new HashMap<>(leaf);
    out.remove("keys");
    out.put("sums", new HashMap<String, Long>());
    return out;
  }

  private static void plus(Map<String, Long> sums, String name, long more) {
    sums.merge(name, more, Long::sum);
  }

  /** Returns the operand that pruned the most files, of those on the same column, or on some of the
      same columns together, and for the same sort of conditions; -1: none pruned a file. */
  private static int bestOperand(Map<String, Object> leaf, Map<String, Object> scan) {
    if (!(scan.get(Protocol.OPERANDS) instanceof List<?> operands)) return -1;
    int[] counts = (int[]) scan.get("counts");
    boolean isText = leaf.get("form").equals(AskedLeaves.TEXT);
    boolean isComposite = !((Collection<?>) leaf.get("parts")).isEmpty();
    String name = leaf.get("name") + " ";
    int best = -1;
    for (int i = 0; i < operands.size(); i++) {
      String label = (String) ((Map<?, ?>) operands.get(i)).get(Protocol.LABEL);
      boolean isOf = isComposite ? areAmong(label, name) : label.startsWith(name);
      boolean isUsed = isOf && counts[i] > 0 && label.startsWith(name + "LIKE '%") == isText;
      if (isUsed && (best < 0 || counts[i] > counts[best])) best = i;
    }
    return best;
  }

  /** Whether what begins with columns in parentheses, "(b, a) IN ...", has no others than `name`. */
  private static boolean areAmong(String label, String name) {
    return label.startsWith("(") && columns(name).containsAll(columns(label));
  }

  private static List<String> columns(String label) {
    int end = label.indexOf(") ");
    return Arrays.asList(label.substring(1, end < 0 ? label.length() : end).split(", "));
  }

  /** Returns a number that grows with each change. */
  public synchronized long changes() {
    return changes;
  }

  /** Returns all of it as JSON: a list of days with their tables and these with their predicates. */
  public synchronized String json() {
    List<Map<String, Object>> out = new ArrayList<>();
    days.forEach((place, tables) -> {
      List<Map<String, Object>> described = new ArrayList<>();
      tables.forEach((key, table) -> {
        Map<String, Object> one = new HashMap<>(table.sums);
        one.put("table", key);
        one.put("name", table.name);
        one.put("predicates", table.predicates.values());
        described.add(one);
      });
      out.add(
          Map.of(
              "day", place.day, "store", place.store, "stored", place.isStored,
              "tables", described));
    });
    return Json.write(out);
  }
}
