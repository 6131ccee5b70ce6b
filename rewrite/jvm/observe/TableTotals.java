package rewrite.jvm.observe;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import rewrite.jvm.bridge.Json;

/** Sums over all scans that were executed, by table: what was asked, skipped, and not, and why. */
public final class TableTotals {
  private static final String[] SUMMED = {
    "total", "pruned", "unknown", "bytes", "pruned bytes", "opened", "opened bytes"
  };

  private static final int TABLES = 1000;
  private static final int REASONS = 20;
  private static final String OTHER = "other";

  private final Map tables = new TreeMap();

  /** Adds the scans of one execution, as ScanReport describes them. */
  public synchronized void add(List scans) {
    for (Iterator each = scans.iterator(); each.hasNext(); ) {
      Map scan = (Map) each.next();
      if (Boolean.TRUE.equals(scan.get("counted"))) add(scan);
    }
  }

  private void add(Map scan) {
    Object name = scan.get("table");
    if (tables.size() >= TABLES && !tables.containsKey(name)) name = OTHER;
    Map sums = (Map) tables.get(name);
    if (sums == null) tables.put(name, sums = new HashMap());
    plus(sums, "scans", 1);
    for (int i = 0; i < SUMMED.length; i++) {
      if (scan.get(SUMMED[i]) instanceof Number) {
        plus(sums, SUMMED[i], ((Number) scan.get(SUMMED[i])).doubleValue());
      }
    }
    if (scan.get("reason") != null) {
      Map reasons = (Map) sums.get("reasons");
      if (reasons == null) sums.put("reasons", reasons = new TreeMap());
      String reason = (String) scan.get("reason");
      plus(reasons, reasons.size() < REASONS || reasons.containsKey(reason) ? reason : OTHER, 1);
    } else {
      plus(sums, "asked", 1);
      if (scan.get("seconds") instanceof Number) {
        plus(sums, "seconds", ((Number) scan.get("seconds")).doubleValue());
      }
    }
  }

  private static void plus(Map sums, String name, double more) {
    Number before = (Number) sums.get(name);
    sums.put(name, Double.valueOf((before == null ? 0 : before.doubleValue()) + more));
  }

  /** One object a table, as JSON. */
  public synchronized String json() {
    List out = new ArrayList();
    for (Iterator each = tables.keySet().iterator(); each.hasNext(); ) {
      Object name = each.next();
      Map sums = new HashMap((Map) tables.get(name));
      sums.put("table", name);
      out.add(sums);
    }
    return Json.write(out);
  }
}
