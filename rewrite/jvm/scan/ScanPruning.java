package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import rewrite.jvm.bridge.Answer;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.keys.TupleKeys;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.PredicateEncoder;
import rewrite.jvm.predicate.ScalarSubqueries;
import rewrite.jvm.predicate.TopRows;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.StatisticsResult;
import rewrite.jvm.source.TableStatistics;
import rewrite.jvm.source.FileCounter;

/**
 * The pruning of one scan, whatever reads its files: its conditions, the keys that it waits for,
 * what the index answered, and what became of each file.
 */
public final class ScanPruning {
  private final IndexClient client;
  private final PruningFeedback feedback;
  private final TableStatistics statistics;
  private final ScanSource read;
  private final List filters;
  private final List keys;
  private final TopRows top;
  private Answer answer;
  private StatisticsResult own = new StatisticsResult();
  private Map counts;
  private boolean learned;
  private boolean isCollected;
  private boolean isOrdered;

  /** `filters` are the scan's own, `keys` what joins demand of it, `top` what an order wants of it,
      or null. */
  public ScanPruning(
      IndexClient client, PruningFeedback feedback, TableStatistics statistics, ScanSource read,
      List filters, List keys, TopRows top) {
    this.client = client;
    this.feedback = feedback;
    this.statistics = statistics;
    this.read = read;
    this.filters = filters;
    this.keys = keys;
    this.top = top;
  }

  public ScanSource read() {
    return read;
  }

  public List filters() {
    return filters;
  }

  /** The sets of keys that joins demand. */
  public List keys() {
    return keys;
  }

  /** Whether a file is proven to hold no matching row. */
  public boolean prunes(int ordinal, String location) {
    return answer.prunes(ordinal) || own.prunes(location);
  }

  /** Whether the index has been asked; otherwise this is done when files are listed. */
  public boolean isAsked() {
    return answer != null;
  }

  /** What the index answered. */
  public Answer answer() {
    return answer;
  }

  /** Whether it has to wait until Spark has the values of subqueries. */
  boolean waitsForValues() {
    return statistics.areAwaited(read, filters);
  }

  /** Notes that the keys have been collected, before files are listed. */
  void setCollected() {
    isCollected = true;
  }

  /** Whether the keys have been collected. */
  boolean isCollected() {
    return isCollected;
  }

  /** Asks the table and its index, with the keys that are there. */
  public void ask() {
    ask(filters, new ArrayList());
  }

  /** Leaves out nothing from now on: something failed. */
  void giveUp(String reason) {
    answer = Answer.failed("pruning it failed: " + reason);
    own = new StatisticsResult();
    counts = answer.header();
  }

  private void ask(List filters, List late) {
    boolean something = !filters.isEmpty() || top != null;
    List asked = new ArrayList();
    for (int i = 0; i < keys.size(); i++) {
      something |= ((JoinKeySet) keys.get(i)).isAvailable();
      addForms(asked, (JoinKeySet) keys.get(i));
    }
    own = statistics.ask(read, filters, late, keys);
    if (!something) {
      answer =
          Answer.failed("there are no keys, and no condition of the query reached this scan");
      return;
    }
    String refusal = client.refusal(read.table(), true);
    answer =
        refusal == null
            ? client.ask(
                PredicateEncoder.question(
                    read.table(), statistics.columns(read), filters, asked,
                    TupleKeys.of(keys, statistics.composites(read), client.maxBytes())))
            : Answer.failed(refusal);
  }

  /** Adds the keys in the forms that the index knows: as those of the expression that the join
      compares, and as values of the column in it. */
  private void addForms(List asked, JoinKeySet set) {
    KeyValues given = set.given();
    boolean isIndexed = given != null && statistics.isIndexed(read, given.column());
    if (isIndexed) asked.add(given);
    if (!isIndexed || statistics.isIndexed(read, set.column())) asked.add(set);
  }

  /** Bytes of keys that one dimension may have; no limit if not above zero. */
  public long maxBytes() {
    return client.maxBytes();
  }

  /** Itself once it has asked; till then what it would do without keys, which leaves it as it is:
      explaining a query must not make it run without them. */
  public ScanPruning forecast() {
    if (isAsked()) return this;
    ScanPruning out = new ScanPruning(client, feedback, statistics, read, filters, keys, top);
    out.ask();
    return out;
  }

  /** Collects the keys that Spark does not, then asks, with the values of subqueries. */
  public void collectAndAsk() {
    List again = new ArrayList();
    for (int i = 0; i < keys.size() && !isCollected; i++) {
      if (!((JoinKeySet) keys.get(i)).isBroadcast()) again.add(keys.get(i));
    }
    JoinKeySet.collect(again, statistics.composites(read), client);
    List late = ScalarSubqueries.of(filters);
    List values = ScalarSubqueries.resolved(late);
    List all = new ArrayList(filters);
    all.removeAll(late);
    all.addAll(values);
    all.addAll(TupleKeys.conditions(keys, client.maxBytes()));
    ask(all, values);
  }

  /** Starts to count what becomes of the files at some locations. */
  public FileCounter tally(Collection locations) {
    if (top != null && !isOrdered) statistics.add(own, read, top, locations);
    isOrdered = true;
    return new FileCounter(answer, own);
  }

  /** All files were counted. */
  public void done(FileCounter tally) {
    counts = tally.counts();
    learn(tally);
  }

  /** Whether files were counted. */
  public boolean isCounted() {
    return counts != null;
  }

  /** Notes what each set of keys pruned alone. */
  private void learn(FileCounter tally) {
    if (learned) return;
    learned = true;
    for (int i = 0; i < keys.size(); i++) {
      JoinKeySet set = (JoinKeySet) keys.get(i);
      if (set.isLost()) {
        feedback.lost(set.expression().exprId(), set.reason(), set.seconds());
      }
      if (!set.isAvailable() || tally.total() == 0) continue;
      feedback.saved(
          set.expression().exprId(), (double) tally.most(set.dimension()) / tally.total());
    }
  }

  /** What was counted, and the keys, for explain. */
  public Map describe() {
    Map out = new HashMap(counts);
    List described = new ArrayList();
    for (int i = 0; i < keys.size(); i++) {
      described.add(((JoinKeySet) keys.get(i)).describe());
    }
    out.put("keys", described);
    return out;
  }

  /** For Spark's EXPLAIN, around what the scan itself says. */
  public String show(Object inner) {
    StringBuilder out = new StringBuilder("Skipping(");
    for (int i = 0; i < keys.size(); i++) {
      JoinKeySet set = (JoinKeySet) keys.get(i);
      if (set.column() == null) continue;
      out.append(Conditions.shape(set.column())).append(" by ");
      out.append(set.dimension()).append(", ");
    }
    return out.append(inner).append(")").toString();
  }

  /** Whether two scans of the same files leave out the same ones. Where keys are still to come they
      stand in the scan's own filters, which Spark compares; except those of a dimension that is
      read again, so such a scan equals only itself. */
  public boolean prunesAs(ScanPruning that) {
    if (this == that) return true;
    if (top != null || that.top != null) return false;
    if (answer != null || that.answer != null) {
      return answer != null && answer.equals(that.answer) && own.equals(that.own);
    }
    return onlyBroadcasts() && that.onlyBroadcasts() && !waitsForValues() && !that.waitsForValues();
  }

  private boolean onlyBroadcasts() {
    for (int i = 0; i < keys.size(); i++) {
      JoinKeySet set = (JoinKeySet) keys.get(i);
      if (set.column() != null && !set.isBroadcast()) return false;
    }
    return true;
  }
}
