package rewrite.jvm;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The pruning of one scan, whatever reads its files: its conditions, the keys that it waits for,
 * what the index answered, and what became of each file.
 */
public final class Pruning {
  private final Skipping skipping;
  private final IndexedScan read;
  private final List filters;
  private final List keys;
  private Answer answer;
  private Map counts;
  private boolean learned;

  /** `filters` are the scan's own, `keys` what joins demand of it. */
  public Pruning(Skipping skipping, IndexedScan read, List filters, List keys) {
    this.skipping = skipping;
    this.read = read;
    this.filters = filters;
    this.keys = keys;
  }

  public IndexedScan read() {
    return read;
  }

  public List filters() {
    return filters;
  }

  /** The sets of keys that joins demand. */
  public List keys() {
    return keys;
  }

  public Skipping skipping() {
    return skipping;
  }

  /** Whether the index has been asked; otherwise this is done when files are listed. */
  public boolean isAsked() {
    return answer != null;
  }

  /** What the index answered. */
  public Answer answer() {
    return answer;
  }

  /** Asks the index, with the keys that are there. */
  public void ask() {
    boolean something = !filters.isEmpty();
    for (int i = 0; i < keys.size(); i++) {
      something |= ((KeySet) keys.get(i)).values() != null;
    }
    answer = something
        ? skipping.ask(read, filters, keys)
        : Answer.failed("there are no keys, and no condition of the query reached this scan");
  }

  /** Itself once it has asked; till then what it would do without keys, which leaves it as it is:
      explaining a query must not make it run without them. */
  public Pruning forecast() {
    if (isAsked()) return this;
    Pruning out = new Pruning(skipping, read, filters, keys);
    out.ask();
    return out;
  }

  /** Collects the keys that Spark does not, then asks. */
  public void collectAndAsk() {
    List again = new ArrayList();
    for (int i = 0; i < keys.size(); i++) {
      if (!((KeySet) keys.get(i)).isBroadcast()) again.add(keys.get(i));
    }
    KeySet.collect(again, skipping);
    ask();
  }

  /** Starts to count what becomes of the files. */
  public Tally tally() {
    return new Tally();
  }

  /** Whether files were counted. */
  public boolean isCounted() {
    return counts != null;
  }

  /** Notes what each set of keys disproved alone. */
  private void learn(int total, int[] legs) {
    if (learned) return;
    learned = true;
    for (int i = 0; i < keys.size(); i++) {
      KeySet set = (KeySet) keys.get(i);
      if (set.values() == null || total == 0) continue;
      int most = 0;
      for (int k = 0; k < legs.length; k++) {
        if (answer.isOf(k, set.dimension())) most = Math.max(most, legs[k]);
      }
      skipping.history().saved(set.expression().exprId(), (double) most / total);
    }
  }

  /** What was counted, and the keys, for explain. */
  public Map describe() {
    Map out = new HashMap(counts);
    List described = new ArrayList();
    for (int i = 0; i < keys.size(); i++) {
      described.add(((KeySet) keys.get(i)).describe());
    }
    out.put("keys", described);
    return out;
  }

  /** For Spark's EXPLAIN, around what the scan itself says. */
  public String show(Object inner) {
    StringBuilder out = new StringBuilder("Skipping(");
    for (int i = 0; i < keys.size(); i++) {
      KeySet set = (KeySet) keys.get(i);
      if (set.column() == null) continue;
      out.append(Filters.shape(set.column())).append(" by ").append(set.dimension()).append(", ");
    }
    return out.append(inner).append(")").toString();
  }

  /** Whether two scans of the same files leave out the same ones. Where keys are still to come they
      stand in the scan's own filters, which Spark compares; except those of a dimension that is
      read again, so such a scan equals only itself. */
  public boolean prunesAs(Pruning that) {
    if (this == that) return true;
    if (answer != null || that.answer != null) {
      return answer != null && answer.equals(that.answer);
    }
    return onlyBroadcasts() && that.onlyBroadcasts();
  }

  private boolean onlyBroadcasts() {
    for (int i = 0; i < keys.size(); i++) {
      KeySet set = (KeySet) keys.get(i);
      if (set.column() != null && !set.isBroadcast()) return false;
    }
    return true;
  }

  /** What becomes of the files of one listing. */
  public final class Tally {
    private int total;
    private int unknown;
    private int disproved;
    private long bytes;
    private long disprovedBytes;
    private final int[] legs = new int[answer.legs()];
    private final Map foreign = new TreeMap();

    /** Counts a file, by its ordinal (-1: unknown) and size; whether it is left out. */
    public boolean drops(int ordinal, long size) {
      total++;
      bytes += size;
      if (ordinal < 0) unknown++;
      for (int i = 0; i < legs.length; i++) {
        if (answer.disproves(i, ordinal)) legs[i]++;
      }
      if (!answer.disproves(ordinal)) return false;
      disproved++;
      disprovedBytes += size;
      return true;
    }

    /** Counts a file of a format that no index is made of; it is unknown, too. */
    public void foreign(String format) {
      Integer before = (Integer) foreign.get(format);
      foreign.put(format, Integer.valueOf(before == null ? 1 : before.intValue() + 1));
    }

    private List unused() {
      List out = new ArrayList();
      if (answer.header().get("unused") != null) out.addAll((List) answer.header().get("unused"));
      for (Iterator each = foreign.entrySet().iterator(); each.hasNext(); ) {
        Map.Entry format = (Map.Entry) each.next();
        out.add(format.getKey() + " files (" + format.getValue() + "): only Parquet is indexed");
      }
      return out;
    }

    /** All files were seen. */
    public void done() {
      Map out = new HashMap(answer.header());
      out.put("total", Integer.valueOf(total));
      out.put("unknown", Integer.valueOf(unknown));
      out.put("disproved", Integer.valueOf(disproved));
      out.put("counts", legs);
      out.put("bytes", Long.valueOf(bytes));
      out.put("disproved bytes", Long.valueOf(disprovedBytes));
      out.put("unused", unused());
      counts = out;
      learn(total, legs);
    }
  }
}
