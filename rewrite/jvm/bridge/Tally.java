package rewrite.jvm.bridge;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** What becomes of the files of one listing, by what an index answered. */
public final class Tally {
  private final Answer answer;
  private final int[] legs;
  private final Map foreign = new TreeMap();
  private int total;
  private int unknown;
  private int disproved;
  private long bytes;
  private long disprovedBytes;

  public Tally(Answer answer) {
    this.answer = answer;
    this.legs = new int[answer.legs()];
  }

  /** The file's ordinal; -1: the index does not know it. */
  public int ordinal(String path, long size, String mark) {
    return answer.ordinal(path, size, mark);
  }

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

  /** How many files there were. */
  public int total() {
    return total;
  }

  /** How many of them each leg disproves alone. */
  public int[] legs() {
    return legs;
  }

  /** All that was counted, with what the index answered, for explain. */
  public Map counts() {
    Map out = new HashMap(answer.header());
    out.put("total", Integer.valueOf(total));
    out.put("unknown", Integer.valueOf(unknown));
    out.put("disproved", Integer.valueOf(disproved));
    out.put("counts", legs);
    out.put("bytes", Long.valueOf(bytes));
    out.put("disproved bytes", Long.valueOf(disprovedBytes));
    out.put("unused", unused());
    return out;
  }

  private List unused() {
    List out = new ArrayList();
    List unused = (List) answer.header().get(Protocol.UNUSED);
    if (unused != null) out.addAll(unused);
    for (Iterator each = foreign.entrySet().iterator(); each.hasNext(); ) {
      Map.Entry format = (Map.Entry) each.next();
      out.add(format.getKey() + " files (" + format.getValue() + "): only Parquet is indexed");
    }
    return out;
  }
}
