package rewrite.jvm.keys;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import rewrite.jvm.bridge.Json;
import rewrite.jvm.bridge.RecentMap;

/**
 * Remembers what the keys of joins pruned, by the shape of the lookup: table, column, filtering
 * side, conditions.
 *
 * <p>Python stores how often the last lookups of a shape pruned too little. The first query of
 * another driver tries nevertheless; if that prunes too little again, the pauses go on from there.
 *
 * <p>A shape that pruned too little, or whose query could not provide the keys, is not used in the
 * next query, then in the next three, then seven, at last in ten: data and conditions change. If
 * keys split what Spark reads once, a try may cost as much as the query: then the pauses are seven,
 * fifteen, at last forty. Whatever the reason, the shape is also not used for twenty times as long
 * as collecting its keys took, and after several useless tries in turn for up to 160 times as long:
 * tries take a twentieth of the time at first, and less than a hundredth later.
 */
public final class PruningFeedback {
  private static final String NOT_COLLECTED = "keys were not collected lately: ";
  private static final int MAX_PAUSE = 10;
  private static final int MAX_PAUSE_OF_COPIES = 40;
  private static final double PAUSE_AFTER_TRY = 20; // times as long as it took
  private static final int MAX_DOUBLINGS = 3; // of it, one for each useless try in turn
  private static final double MIN_BENEFIT = 0.01;
  private static final int CAPACITY = 10_000;
  private static final int STORED = 256;
  private static final int MAX_RESTORED = 10; // the longest pause
  private static final int DIGEST = 8; // bytes

  private final Map<String, Outcome> outcomes = new RecentMap<>(CAPACITY);
  /** By the digest of a shape: what other drivers saw of shapes that were not used here yet. */
  private final Map<String, Integer> others = new HashMap<>();

  /**
   * Return why a shape is not worth a lookup, or null.
   *
   * <p>A failure counts only for a filtering side with the same overhead: one of another size may
   * be another one.
   *
   * <p>Without keys Spark would read the scan once for `copies` parts of the query. All scans of a
   * query get the same result, otherwise their copies would no longer be equal.
   */
  public synchronized String rejectReason(String shape, String overhead, int copies) {
    Outcome outcome = find(shape);
    if (outcome == null) return null;
    QueryPlanningTracker query = KeySource.currentQuery();
    if (query == null || outcome.query.get() != query) {
      outcome.query = new WeakReference<>(query);
      outcome.rejected++;
      outcome.isEarly = System.nanoTime() - outcome.resumes < 0;
    }
    boolean failed = outcome.failure != null && outcome.failureOverhead.equals(overhead);
    if (failed && outcome.isEarly) return NOT_COLLECTED + outcome.failure;
    if (outcome.useless == 0) return null;
    if (outcome.rejected > outcome.pause(copies) && !outcome.isEarly) return null;
    if (outcome.refusal != null) return NOT_COLLECTED + outcome.refusal;
    return "keys of this shape saved less than " + (int) (100 * minBenefit(copies))
        + " % of the files lately"
        + (copies == 1 ? "" : ", which Spark reads once for " + copies + " parts of the query");
  }

  /** Return why the keys of a source are not worth a lookup, or null. */
  public String rejectReason(KeySource source) {
    return rejectReason(source.shape(), source.overhead(), source.copies());
  }

  /** Record the fraction of the files, from 0 to 1, that the keys of a source pruned, and how long
      collecting them took. */
  public void recordBenefit(KeySource source, double fraction, double seconds) {
    record(source, fraction, seconds, null);
  }

  /** Record why the query of a source could not provide its keys, and how long that took. */
  public void recordRefusal(KeySource source, String reason, double seconds) {
    record(source, 0, seconds, reason);
  }

  private synchronized void record(
      KeySource source, double fraction, double seconds, String refusal) {
    if (!source.isRegistered()) return;
    Outcome outcome = findOrAdd(source.shape());
    if (fraction >= minBenefit(source.copies())) {
      outcome.useless = 0;
    } else if (outcome.isOtherQuery(source.query().get())) {
      outcome.useless++;
      outcome.resumes = outcome.afterTry(seconds);
    } else { // each part of a query reports
      outcome.resumes = Math.max(outcome.resumes, outcome.afterTry(seconds));
    }
    outcome.refusal = refusal;
    outcome.isMeasured = true;
    outcome.lastUse = source.query();
    outcome.rejected = 0;
    outcome.failure = null;
  }

  /** Record that the keys of a source could not be collected, why, and how long that took. */
  public synchronized void recordFailure(KeySource source, String reason, double seconds) {
    if (!source.isRegistered()) return;
    Outcome outcome = findOrAdd(source.shape());
    outcome.failure = reason;
    outcome.failureOverhead = source.overhead();
    outcome.resumes = outcome.afterTry(seconds);
  }

  private Outcome find(String shape) {
    Outcome outcome = outcomes.get(shape);
    Integer useless = outcome != null || others.isEmpty() ? null : others.remove(digest(shape));
    if (useless == null) return outcome;
    outcome = findOrAdd(shape);
    outcome.useless = Math.max(0, Math.min(useless, MAX_RESTORED));
    outcome.rejected = MAX_PAUSE_OF_COPIES; // no pause before the first query
    return outcome;
  }

  private Outcome findOrAdd(String shape) {
    return outcomes.computeIfAbsent(shape, any -> new Outcome());
  }

  /** Return how many of the last lookups of each shape pruned too little, as JSON, by the digest of
      the shape: those used last, without what only other drivers saw. */
  public synchronized String json() {
    Map<String, Integer> out = new HashMap<>();
    int rest = outcomes.size();
    for (Map.Entry<String, Outcome> each : outcomes.entrySet()) {
      if (rest-- > STORED || !each.getValue().isMeasured) continue;
      out.put(digest(each.getKey()), each.getValue().useless);
    }
    return Json.write(out);
  }

  /** Begin with what other drivers saw, as `json` has it. */
  public synchronized void restore(String json) throws IOException {
    Json.read(json.getBytes(StandardCharsets.UTF_8))
        .forEach((digest, useless) -> others.put(digest, ((Number) useless).intValue()));
  }

  private static String digest(String shape) {
    try {
      byte[] bytes =
          MessageDigest.getInstance("SHA-256").digest(shape.getBytes(StandardCharsets.UTF_8));
      return HexFormat.of().formatHex(bytes, 0, DIGEST);
    } catch (NoSuchAlgorithmException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  /** Return the fraction of the files to prune: if one read serves several parts of the query, the
      cost of the other reads. */
  private static double minBenefit(int copies) {
    return Math.max(MIN_BENEFIT, 1 - 1.0 / copies);
  }

  /** What the lookups of one shape pruned. */
  private static final class Outcome {
    private int useless;
    private int rejected;
    private boolean isMeasured;
    private String refusal;
    private String failure;
    private String failureOverhead;
    private long resumes = System.nanoTime();
    private boolean isEarly;
    private WeakReference<QueryPlanningTracker> query = new WeakReference<>(null);
    private WeakReference<QueryPlanningTracker> lastUse = new WeakReference<>(null);

    /** Whether it is another query than the one with the last use, or unknown. */
    boolean isOtherQuery(QueryPlanningTracker query) {
      return query == null || lastUse.get() != query;
    }

    /** Return when the next try may begin, in nanoseconds. */
    long afterTry(double seconds) {
      int doublings = Math.max(0, Math.min(useless - 1, MAX_DOUBLINGS));
      return System.nanoTime() + (long) (PAUSE_AFTER_TRY * (1 << doublings) * seconds * 1e9);
    }

    /** Return how many queries do no lookup before the next one does. */
    int pause(int copies) {
      int longest = copies == 1 ? MAX_PAUSE : MAX_PAUSE_OF_COPIES;
      int doublings = copies == 1 ? useless : useless + 2;
      return Math.min(longest, (1 << Math.min(doublings, 10)) - 1);
    }
  }
}
