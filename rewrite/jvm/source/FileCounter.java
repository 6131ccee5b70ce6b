package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import rewrite.jvm.bridge.Answer;
import rewrite.jvm.bridge.Protocol;

/** What becomes of the files of one listing, by what an index and the table itself answered. */
public final class FileCounter {
  private final Answer answer;
  private final StatisticsResult statistics;
  private final int[] legs;
  private final Map foreign = new TreeMap();
  private int total;
  private int unknown;
  private int pruned;
  private long bytes;
  private long prunedBytes;

  public FileCounter(Answer answer, StatisticsResult statistics) {
    this.answer = answer;
    this.statistics = statistics;
    this.legs = new int[answer.legs() + statistics.legs()];
  }

  /** The file's ordinal; -1: the index does not know it. */
  public int ordinal(String path, long size, String mark) {
    return answer.ordinal(path, size, mark);
  }

  /** Counts a file, by its ordinal (-1: unknown), location and size; whether it is left out. */
  public boolean drops(int ordinal, String location, long size) {
    total++;
    bytes += size;
    if (ordinal < 0 && answer.index() != null) unknown++;
    for (int i = 0; i < legs.length; i++) {
      int own = i - answer.legs();
      if (own < 0 ? answer.prunes(i, ordinal) : statistics.prunes(own, location)) legs[i]++;
    }
    if (!answer.prunes(ordinal) && !statistics.prunes(location)) return false;
    pruned++;
    prunedBytes += size;
    return true;
  }

  /** Takes back that a file of so many bytes is left out. */
  public void keep(long size) {
    pruned--;
    prunedBytes -= size;
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

  /** The share of their bytes, from 0 to 1, that is left; 1 if there were none. */
  public double left() {
    return bytes == 0 ? 1 : 1 - (double) prunedBytes / bytes;
  }

  /** How many of them the best leg of a dimension's keys prunes alone. */
  public int most(String dimension) {
    int most = 0;
    for (int i = 0; i < legs.length; i++) {
      int own = i - answer.legs();
      boolean its = own < 0 ? answer.isOf(i, dimension) : statistics.isOf(own, dimension);
      if (its) most = Math.max(most, legs[i]);
    }
    return most;
  }

  /** All that was counted, with what the index answered, for explain. */
  public Map counts() {
    Map out = new HashMap(answer.header());
    List described = new ArrayList(answer.described());
    described.addAll(statistics.described());
    out.put(Protocol.LEGS, described);
    out.put("total", Integer.valueOf(total));
    out.put("unknown", Integer.valueOf(unknown));
    out.put("pruned", Integer.valueOf(pruned));
    out.put("counts", legs);
    out.put("bytes", Long.valueOf(bytes));
    out.put("pruned bytes", Long.valueOf(prunedBytes));
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
