package rewrite.jvm.observe;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import rewrite.jvm.bridge.Json;

/** Sums over all scans that were executed, by table: lookups, files skipped, and reasons why not. */
public final class TableTotals {
  private static final List<String> SUMMED =
      List.of("total", "pruned", "unknown", "bytes", "pruned bytes", "opened", "opened bytes");

  private static final int TABLES = 1000;
  private static final int REASONS = 20;
  private static final String OTHER = "other";

  private final Map<String, Sums> tables = new TreeMap<>();

  private record Sums(Map<String, Double> sums, Map<String, Double> reasons) {
    void add(String name, Object more) {
      if (more instanceof Number number) sums.merge(name, number.doubleValue(), Double::sum);
    }
  }

  /** Adds the scans of one execution, as ScanReport describes them. */
  public synchronized void add(List<Map<String, Object>> scans) {
    for (Map<String, Object> scan : scans) {
      if (Boolean.TRUE.equals(scan.get("counted"))) add(scan);
    }
  }

  private void add(Map<String, Object> scan) {
    String name = Json.text(scan, "table");
    if (tables.size() >= TABLES && !tables.containsKey(name)) name = OTHER;
    Sums sums = tables.computeIfAbsent(name, key -> new Sums(new HashMap<>(), new TreeMap<>()));
    sums.add("scans", 1);
    SUMMED.forEach(each -> sums.add(each, scan.get(each)));
    if (scan.get("reason") instanceof String reason) {
      boolean isKnown = sums.reasons.size() < REASONS || sums.reasons.containsKey(reason);
      sums.reasons.merge(isKnown ? reason : OTHER, 1.0, Double::sum);
    } else {
      sums.add("asked", 1);
      sums.add("seconds", scan.get("seconds"));
    }
  }

  /** Returns one object a table, as JSON. */
  public synchronized String json() {
    List<Map<String, Object>> out = new ArrayList<>();
    tables.forEach((name, sums) -> {
      Map<String, Object> table = new HashMap<>(sums.sums);
      table.put("table", name);
      if (!sums.reasons.isEmpty()) table.put("reasons", sums.reasons);
      out.add(table);
    });
    return Json.write(out);
  }
}
