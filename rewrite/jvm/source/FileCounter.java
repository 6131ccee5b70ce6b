package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import rewrite.jvm.bridge.LookupResponse;
import rewrite.jvm.bridge.Protocol;

/** Counts the files of one listing, and those that an index or the table itself prunes. */
public final class FileCounter {
  private final LookupResponse response;
  private final StatisticsResult statistics;
  private final Set<String> candidates;
  private final int[] prunedBy; // files for each operand: those of the index, then statistics
  private final long[] prunedBytesBy;
  private final Map<String, Integer> foreign = new TreeMap<>();
  private int total;
  private int unknown;
  private int pruned;
  private long bytes;
  private long prunedBytes;

  public FileCounter(LookupResponse response, StatisticsResult statistics) {
    this(response, statistics, null);
  }

  /** `candidates` are the locations of the only files that may be pruned; null: all. */
  public FileCounter(
      LookupResponse response, StatisticsResult statistics, Set<String> candidates) {
    this.candidates = candidates;
    this.response = response;
    this.statistics = statistics;
    this.prunedBy = new int[response.operands() + statistics.operands()];
    this.prunedBytesBy = new long[prunedBy.length];
  }

  /** Whether some file of the table may be pruned; the listing may not have it. */
  public boolean prunesAny() {
    return response.prunesAny() || statistics.prunesAny();
  }

  /** Whether the index has sketches of `files` files or more. */
  public boolean isIndexed(int files) {
    return response.index() != null && response.files() >= files;
  }

  /** Returns the file's ordinal; -1: the index does not know it. */
  public int ordinal(String path, long size, String mark) {
    return response.ordinal(path, size, mark);
  }

  /** Counts a file, by its ordinal (-1: unknown), location and size; returns whether it is pruned. */
  public boolean drops(int ordinal, String location, long size) {
    total++;
    bytes += size;
    if (ordinal < 0 && response.index() != null) unknown++;
    if (candidates != null && !candidates.contains(location)) return false;
    for (int i = 0; i < prunedBy.length; i++) {
      int own = i - response.operands();
      if (own < 0 ? response.prunes(i, ordinal) : statistics.prunes(own, location)) {
        prunedBy[i]++;
        prunedBytesBy[i] += size;
      }
    }
    if (!response.prunes(ordinal) && !statistics.prunes(location)) return false;
    pruned++;
    prunedBytes += size;
    return true;
  }

  /** Counts a pruned file as read after all, by its size. */
  public void keep(long size) {
    pruned--;
    prunedBytes -= size;
  }

  /** Counts a file of a format that cannot be indexed; it is unknown, too. */
  public void foreign(String format) {
    foreign.merge(format, 1, Integer::sum);
  }

  public int total() {
    return total;
  }

  /** Returns how many files are left. */
  public int remaining() {
    return total - pruned;
  }

  /** Returns the fraction of the bytes, from 0 to 1, that remains; 1 if there were none. */
  public double remainingFraction() {
    return bytes == 0 ? 1 : 1 - (double) prunedBytes / bytes;
  }

  /** Returns how many files the best predicate with a dimension's keys prunes alone. */
  public int most(String dimension) {
    int most = 0;
    for (int i = 0; i < prunedBy.length; i++) {
      int own = i - response.operands();
      boolean its = own < 0 ? response.isOf(i, dimension) : statistics.isOf(own, dimension);
      if (its) most = Math.max(most, prunedBy[i]);
    }
    return most;
  }

  /** Returns all counts, with the header of the index's response, for explain. */
  public Map<String, Object> counts() {
    Map<String, Object> out = new HashMap<>(response.header());
    List<Object> described = new ArrayList<>(response.describeOperands());
    described.addAll(statistics.describeOperands());
    List<Object> unused = new ArrayList<>();
    if (out.get(Protocol.UNUSED) instanceof List<?> predicates) unused.addAll(predicates);
    foreign.forEach(
        (format, files) ->
            unused.add(format + " files (" + files + "): only Parquet is indexed"));
    out.put(Protocol.OPERANDS, described);
    out.put("total", total);
    out.put("unknown", unknown);
    out.put("pruned", pruned);
    out.put("counts", prunedBy);
    out.put("counted bytes", prunedBytesBy);
    out.put("bytes", bytes);
    out.put("pruned bytes", prunedBytes);
    out.put("unused", unused);
    return out;
  }
}
