package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.ScalarSubquery;
import org.apache.spark.sql.execution.SparkPlan;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.LookupResponse;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.keys.KeyForms;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.keys.TupleKeys;
import rewrite.jvm.keys.TupleRow;
import rewrite.jvm.predicate.Composites;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.PredicateEncoder;
import rewrite.jvm.predicate.RunningPlan;
import rewrite.jvm.predicate.ScalarSubqueries;
import rewrite.jvm.predicate.TopRows;
import rewrite.jvm.source.FileCounter;
import rewrite.jvm.source.PlannedLookup;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.StatisticsResult;
import rewrite.jvm.source.TableStatistics;

/** The pruning of one scan of any format: its conditions and keys, the lookup, and the counts. */
public final class ScanPruning {
  private final IndexClient client;
  private final PruningFeedback feedback;
  private final TableStatistics statistics;
  private final List<LogicalPlan> planned;
  private final ScanSource read;
  private final List<Expression> filters;
  private final List<KeyValues> staticKeys;
  private final List<JoinKeySet> keys;
  private final List<TopRows> tops;
  private final Composites composites;
  private LookupResponse response; // null before the lookup
  /** The locations of the only files that keys may prune; null: all. */
  private Set<String> candidates;
  private StatisticsResult own = new StatisticsResult();
  private Map<String, Object> counts;
  private boolean hasFeedback;
  private boolean isCollected;
  private boolean isOrdered;

  /** `planned` are the leaves of the logical plan, `filters` the scan's conditions, `staticKeys` and
      `keys` those of joins, and `tops` the rows that are sufficient for the query; empty: all. */
  ScanPruning(
      IndexClient client, PruningFeedback feedback, TableStatistics statistics,
      List<LogicalPlan> planned, ScanSource read, List<Expression> filters,
      List<KeyValues> staticKeys, List<JoinKeySet> keys, List<TopRows> tops) {
    this.client = client;
    this.feedback = feedback;
    this.statistics = statistics;
    this.planned = planned;
    this.read = read;
    this.filters = filters;
    this.staticKeys = staticKeys;
    this.keys = keys;
    this.tops = tops;
    this.composites = statistics.composites(read);
  }

  ScanSource read() {
    return read;
  }

  List<Expression> filters() {
    return filters;
  }

  List<JoinKeySet> keys() {
    return keys;
  }

  /** Returns the index's response; null before the lookup, which is then done with the listing. */
  LookupResponse response() {
    return response;
  }

  /** Collects the keys before files are listed. The scan is in the plan `stage`. */
  void collect(SparkPlan stage, SparkPlan scan) {
    JoinKeySet.collect(keys, composites, client);
    keys.forEach(set -> set.discardOtherRows(stage, scan));
    isCollected = true;
  }

  boolean isCollected() {
    return isCollected;
  }

  /** Looks up the table's statistics and its index, with the available keys. */
  void lookUp() {
    lookUp(filters, List.of());
  }

  /** Prunes nothing from now on, because something failed. */
  void readAll(String reason) {
    response = LookupResponse.none("pruning it failed: " + reason);
    own = new StatisticsResult();
    counts = response.header();
  }

  private void lookUp(List<Expression> conditions, List<Expression> late) {
    List<Expression> all = new ArrayList<>(conditions);
    all.addAll(TupleKeys.conditions(keys, client.maxBytes()));
    List<KeyValues> sets = new ArrayList<>(staticKeys);
    sets.addAll(keys);
    own = statistics.ask(read, all, late, sets);
    keys.forEach(this::addOperands);
    candidates = findCandidates();
    response = findPrunable(all);
  }

  /** Adds the files in which no column has one of the keys that it may equal: each column is looked
      up alone, because one may have an index, and another bounds of the table. */
  private void addOperands(JoinKeySet set) {
    if (set.operandKeys() == null) return;
    Set<String> without = null;
    Set<String> by = new TreeSet<>();
    for (KeyForms forms : set.operandKeys()) {
      List<KeyValues> lookups = new ArrayList<>();
      addForms(lookups, forms.original(), forms.ofColumn());
      boolean isIndexed = lookups.stream().anyMatch(each -> isIndexed(each.column()));
      by.add(isIndexed ? "INDEX" : "STATISTICS");
      Set<String> some = findExcluded(List.of(), lookups);
      if (without == null) without = some;
      without.retainAll(some);
      if (without.isEmpty()) break;
    }
    String label =
        TupleRow.shape(set.expression().child()) + " IN ("
            + String.format("%,d", set.size()) + " keys of " + set.dimension() + ")  "
            + String.join(", ", by);
    own.add(label, set.dimension(), without);
  }

  /** Returns the locations of the only files that keys may prune, because a command also needs those
      with rows that meet some conditions; null: all. */
  private Set<String> findCandidates() {
    Set<Expression> conditions = new LinkedHashSet<>();
    keys.forEach(set -> conditions.addAll(set.source().alsoNeeded()));
    Set<String> out = null;
    for (Expression condition : conditions) {
      Set<String> without = findExcluded(Conditions.conjuncts(condition), List.of());
      if (out == null) out = without;
      out.retainAll(without);
      if (out.isEmpty()) break;
    }
    return out;
  }

  /** Returns the locations of files without rows that meet some conditions, and have some keys. */
  private Set<String> findExcluded(List<Expression> conditions, List<KeyValues> sets) {
    try {
      return statistics.findPrunable(read, conditions, conditions, sets);
    } catch (Throwable failure) {
      Failures.passOn(failure);
      return new HashSet<>();
    }
  }

  private LookupResponse findPrunable(List<Expression> filters) {
    boolean hasKeys = !staticKeys.isEmpty() || keys.stream().anyMatch(JoinKeySet::isAvailable);
    if (filters.isEmpty() && tops.isEmpty() && !hasKeys) {
      return LookupResponse.none(
          "there are no keys, and no condition of the query reached this scan");
    }
    String refusal = client.refusal(read.table(), true);
    if (refusal != null) return LookupResponse.none(refusal);
    LookupResponse known =
        hasKeys ? null : PlannedLookup.find(planned, read, client, filters);
    if (known != null) return known;
    List<KeyValues> forms = new ArrayList<>(staticKeys);
    keys.forEach(set -> addForms(forms, set.originalKeys(), set));
    return client.findPrunable(
        PredicateEncoder.request(
            read.table(), statistics.columns(read), filters, forms,
            TupleKeys.of(keys, composites, client.maxBytes())));
  }

  /** Adds keys in the forms that the index has: as values of the expression that the join compares,
      and as values of the column in it. */
  private void addForms(List<KeyValues> forms, KeyValues given, KeyValues ofColumn) {
    boolean isIndexed = given != null && isIndexed(given.column());
    if (isIndexed) forms.add(given);
    if (!isIndexed || isIndexed(ofColumn.column())) forms.add(ofColumn);
  }

  private boolean isIndexed(Expression column) {
    return statistics.isIndexed(read, column);
  }

  /** Returns the maximum bytes of keys that one dimension may have. */
  long maxBytes() {
    return client.maxBytes();
  }

  /** Returns this after its lookup. Before, returns a copy that does the lookup without keys:
      explaining a query must not make it run without them. */
  ScanPruning forecast() {
    if (response != null) return this;
    ScanPruning out =
        new ScanPruning(
            client, feedback, statistics, planned, read, filters, staticKeys, keys, tops);
    out.lookUp();
    return out;
  }

  /** Collects the keys that Spark does not collect, and looks up, with the values of subqueries. */
  void collectAndLookUp() {
    if (!isCollected) {
      List<JoinKeySet> missing = keys.stream().filter(set -> !set.isBroadcast()).toList();
      JoinKeySet.collect(missing, composites, client);
    }
    List<Expression> late = ScalarSubqueries.of(filters);
    Map<ExprId, ScalarSubquery> running =
        late.stream().anyMatch(ScalarSubqueries::isReplaced)
            ? RunningPlan.subqueries()
            : Map.of();
    List<Expression> values =
        late.stream().map(each -> ScalarSubqueries.resolve(each, running)).toList();
    List<Expression> all = new ArrayList<>(filters);
    all.removeAll(late);
    all.addAll(values);
    lookUp(all, values);
  }

  /** Returns a counter for the files at some locations. */
  FileCounter createCounter(Collection<String> locations) {
    if (!tops.isEmpty() && !isOrdered) statistics.add(own, read, tops, locations);
    isOrdered = true;
    return new FileCounter(response, own, candidates);
  }

  /** Takes the counts of all files. */
  void finish(FileCounter counter) {
    counts = counter.counts();
    if (hasFeedback) return;
    hasFeedback = true;
    keys.forEach(set -> addFeedback(set, counter));
  }

  /** Records what a set of keys pruned alone. */
  private void addFeedback(JoinKeySet set, FileCounter counter) {
    if (set.hasFailed()) feedback.recordFailure(set.source(), set.reason(), set.seconds());
    if (set.isRefused()) feedback.recordRefusal(set.source(), set.reason(), set.seconds());
    if (!set.isAvailable() || counter.total() == 0) return;
    double fraction = (double) counter.most(set.dimension()) / counter.total();
    feedback.recordBenefit(set.source(), fraction, set.seconds());
  }

  boolean isCounted() {
    return counts != null;
  }

  /** Returns the counts and the keys, for explain; null if files were not counted. */
  Map<String, Object> describe() {
    if (counts == null) return null;
    Map<String, Object> out = new HashMap<>(counts);
    out.put("keys", keys.stream().map(JoinKeySet::describe).toList());
    return out;
  }

  /** Describes the pruning around the scan's own description, for Spark's EXPLAIN. */
  String show(Object inner) {
    StringBuilder out = new StringBuilder("Skipping(");
    for (JoinKeySet set : keys) {
      if (set.column() == null) continue;
      out.append(Conditions.shape(set.column())).append(" by ");
      out.append(set.dimension()).append(", ");
    }
    return out.append(inner).append(")").toString();
  }

  /** Whether two scans of the same files prune the same ones. Before the lookup, keys are in the
      scan's own filters, which Spark compares. Keys of a dimension that is read again are not: a
      scan with such keys equals only itself. */
  boolean prunesLike(ScanPruning that) {
    if (this == that) return true;
    if (!identities(tops).equals(identities(that.tops))) return false;
    if (response != null || that.response != null) {
      return response != null && response.equals(that.response) && own.equals(that.own)
          && Objects.equals(candidates, that.candidates);
    }
    return staticKeys.equals(that.staticKeys) && isDeterminedByFilters()
        && that.isDeterminedByFilters();
  }

  private static List<List<Object>> identities(List<TopRows> tops) {
    return tops.stream().map(TopRows::identity).toList();
  }

  private boolean isDeterminedByFilters() {
    return keys.stream()
            .allMatch(
                set ->
                    set.column() == null && set.operands().isEmpty()
                        || set.isBroadcast() && set.source().alsoNeeded().isEmpty())
        && !statistics.areAwaited(read, filters);
  }
}
