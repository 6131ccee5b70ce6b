package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeoutException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.InSubqueryExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SubqueryExec;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.types.StructType;
import rewrite.jvm.bridge.Budget;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.predicate.Composites;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.PredicateEncoder;

/**
 * The keys of one join that a scan waits for, or the reason why they are unavailable.
 *
 * <p>If they are unavailable, every file is read. If the join has no keys, no file is read.
 */
public final class JoinKeySet implements KeyValues {
  private static final String NOT_COLLECTED = "Spark did not collect them";

  /** What a key is: a value of one column, the two ends of a range, a row of several columns, or a
      row of columns that OR joins. */
  private enum Form { VALUE, RANGE, TUPLE, OPERANDS }

  /** The filter in the physical plan; null if there is nothing to collect. */
  private final InSubqueryExec filter;
  private final Form form;
  private final Inversion inversion;
  private final KeySource source;
  private CollectedKeys keys;
  private KeyValues original;
  private String reason = "collected when the query runs";
  private double seconds;
  private boolean hasFailed;
  private boolean isRefused;
  private boolean keepsRows;
  private KeyCollection collection;

  private JoinKeySet(InSubqueryExec filter, boolean isAside, KeySource source) {
    this.filter = filter;
    this.source = source;
    this.form =
        !isAside || !(filter.child() instanceof CreateNamedStruct) ? Form.VALUE
        : TupleRow.isRow(filter.child()) ? Form.TUPLE
        : TupleRow.hasOperands(filter.child()) ? Form.OPERANDS
        : Form.RANGE;
    this.inversion = isRow() ? null : Inversion.of(joinExpression());
  }

  private boolean isRow() {
    return form == Form.TUPLE || form == Form.OPERANDS;
  }

  /** Keys that are unavailable. */
  private JoinKeySet(String reason) {
    this.filter = null;
    this.source = KeySource.unknown();
    this.form = Form.VALUE;
    this.inversion = null;
    this.reason = reason;
  }

  /** Return the keys of a condition in a physical plan; null if it is no dynamic pruning
      expression, whether registered or Spark's own. */
  public static JoinKeySet of(Expression condition, PruningRegistry registry) {
    Expression dynamic = Conditions.dynamic(condition);
    if (dynamic == null) return null;
    if (!(dynamic.children().head() instanceof InSubqueryExec filter)) {
      return new JoinKeySet(
          "Spark does not broadcast it, and reading it a second time costs too much");
    }
    KeySource source = registry.find(filter.exprId());
    boolean isAside = Conditions.isAside(condition);
    JoinKeySet set = new JoinKeySet(filter, isAside, source);
    boolean needsSource = set.form == Form.VALUE ? isAside : Conditions.isTwiceAside(condition);
    if (needsSource && !source.isRegistered()) {
      return new JoinKeySet(NOT_COLLECTED); // what such keys require is forgotten
    }
    return set.canCollect() || !source.isOnlyShared()
        ? set
        : new JoinKeySet(set.describeOtherRows());
  }

  /** Whether both are columns of the same rows: of one broadcast, that of one join. */
  boolean isOfSameJoin(JoinKeySet other) {
    return source.join() == other.source.join() && broadcast().hasSameTable(other.broadcast());
  }

  private String describeOtherRows() {
    return "the dimension has " + onlyShared()
        + ", and no join in the scan's own stage has these rows";
  }

  /** Return what the filtering side has that must not run for the keys; null if it may. */
  private String onlyShared() {
    if (!source.isOnlyShared()) return null;
    String reason = source.nonRepeatableReason();
    return reason != null ? reason : "rows that are computed only once";
  }

  /** Discard the keys of a non-repeatable filtering side unless the join of the scan reads the same
      broadcast, or its shuffle is the only one. The scan is in the plan `stage`. */
  public void discardOtherRows(SparkPlan stage, SparkPlan scan) {
    if (source.nonRepeatableReason() == null || !isAvailable()) return;
    if (isBroadcast() ? broadcast().isJoined(stage, scan) : isShuffle()) return;
    keys = null;
    original = null;
    reason = describeOtherRows();
  }

  /** Return the column that must have one of the keys; null if there is nothing to collect, or
      there are several columns. */
  @Override public Expression column() {
    if (filter == null || isRow()) return null;
    return inversion == null ? joinExpression() : inversion.column();
  }

  /** Return the keys of the expression that the join compares; null if that is the column itself,
      or there are no keys. */
  public KeyValues originalKeys() {
    return original;
  }

  /** Return the expression that the join compares, of keys of one column. */
  public Expression joinExpression() {
    if (form != Form.RANGE) return filter.child();
    Expression end = filter.child().children().apply(1);
    return end.children().head(); // inside of KnownNullable
  }

  public InSubqueryExec expression() {
    return filter;
  }

  public KeySource source() {
    return source;
  }

  @Override public String dimension() {
    return source.name();
  }

  @Override public List<Object> values() {
    return keys instanceof CollectedKeys.Values found ? found.values() : null;
  }

  @Override public KeyRanges ranges() {
    return keys instanceof CollectedKeys.Ranges found ? found.ranges() : null;
  }

  /** Return the rows of the keys of several columns; null if they are unavailable, or it is one. */
  Collection<InternalRow> tuples() {
    return keys instanceof CollectedKeys.Tuples found ? found.rows() : null;
  }

  @Override public List<Expression> operands() {
    return form == Form.OPERANDS ? TupleRow.columns(filter.child()) : List.of();
  }

  /** Return how many keys there are; 0 if they are unavailable. */
  public int size() {
    return keys == null ? 0 : keys.size();
  }

  /** Return the keys of each of `operands`; null if they are unavailable. */
  public List<KeyForms> operandKeys() {
    return keys instanceof CollectedKeys.Operands found ? found.forms() : null;
  }

  /** Let the keys prune files only. */
  public void keepRows() {
    keepsRows = true;
  }

  /** Whether the keys also filter rows. They do not if an expression would be evaluated, which may
      fail on a row that never gets to the join. */
  public boolean dropsRows() {
    return values() != null && !keepsRows && source.alsoNeeded().isEmpty()
        && Conditions.path(Inversion.column(column())) != null;
  }

  public boolean isAvailable() {
    return keys != null;
  }

  /** Whether collecting the keys failed: too many, too late, an error. */
  public boolean hasFailed() {
    return hasFailed;
  }

  /** Whether the query cannot provide the keys, as it was planned. */
  public boolean isRefused() {
    return isRefused;
  }

  public double seconds() {
    return seconds;
  }

  /** Return why there are no keys; null if there are. */
  public String reason() {
    return reason;
  }

  /** Whether the query runs, so that keys can be collected, or there is nothing to collect. Without
      adaptive execution the rules see plans long before, and in EXPLAIN, which must run nothing. */
  public boolean canCollect() {
    return filter == null
        || BroadcastKeys.subquery(filter).children().head() instanceof AdaptiveSparkPlanExec;
  }

  /** Whether Spark broadcasts the filtering side; otherwise it is read a second time. Rows of columns
      that OR joins are never in the broadcast of the join itself. */
  public boolean isBroadcast() {
    return filter != null && form != Form.OPERANDS && broadcast() != null;
  }

  /** Whether Spark plans to read the filtering side a second time. Keys that must not cost this come
      from its shuffle. */
  private boolean isShuffle() {
    return BroadcastKeys.subquery(filter) instanceof SubqueryExec;
  }

  /** Return the broadcast of the filtering side, or null. */
  BroadcastKeys broadcast() {
    return BroadcastKeys.of(filter);
  }

  /** Accept the keys that Spark collected, if they fit into `maxBytes`. */
  public void accept(InSubqueryExec finished, long maxBytes) {
    boolean isCollected = finished != null && finished.values().isDefined();
    accept(isCollected ? Arrays.asList(finished.values().get()) : null, maxBytes);
  }

  /** Accept keys that Spark collected, if they fit into `maxBytes`; null if it collected none. */
  public void accept(Collection<Object> found, long maxBytes) {
    if (found == null) {
      reason = NOT_COLLECTED;
      return;
    }
    KeyBytes bytes = new KeyBytes(filter.child().dataType(), maxBytes);
    if (found.stream().allMatch(bytes::fits)) {
      store(found);
    } else {
      reason = KeyCollection.TOO_MANY;
      hasFailed = true;
    }
  }

  /**
   * Collect the keys of several joins at once.
   *
   * <p>All scans of a query together wait at most `spark.sql.broadcastTimeout`, and SHARING_SECONDS
   * of it for shuffles that the query computes anyway. If the query is cancelled, this throws what
   * Spark throws, and ends what runs.
   */
  public static void collect(List<JoinKeySet> sets, Composites composites, IndexClient client) {
    // The shuffles of the query last: they go on while the scan waits for other keys.
    List<JoinKeySet> running =
        sets.stream()
            .filter(set -> set.filter != null)
            .sorted(Comparator.comparing(JoinKeySet::isOnlyShuffled))
            .toList();
    Budget patience = client.patience();
    boolean isComplete = false;
    patience.begin();
    try {
      for (JoinKeySet set : running) {
        set.collection =
            new KeyCollection(set.filter, set.maxKeys(composites), set.onlyShared(), client);
      }
      for (JoinKeySet set : running) {
        set.await(patience, client.sharing());
      }
      isComplete = true;
    } finally {
      patience.end();
      for (JoinKeySet set : running) {
        if (set.collection == null) continue;
        set.collection.stop(!isComplete);
        set.collection.restart();
      }
    }
  }

  /** Tuples are looked up if they are few, or a multi-column index covers their columns. */
  private int maxKeys(Composites composites) {
    boolean areAny = form != Form.TUPLE || composites.applyTo(TupleRow.columns(filter.child()));
    return areAny ? Integer.MAX_VALUE : PredicateEncoder.FEW_TUPLES;
  }

  /** Whether the keys come only from a shuffle that the query computes anyway. */
  private boolean isOnlyShuffled() {
    return source.isOnlyShared() && isShuffle() && !isBroadcast();
  }

  private void await(Budget patience, Budget sharing) {
    boolean isShort = isOnlyShuffled();
    if (isShort) sharing.begin();
    long limit = patience.remaining();
    long shared = isShort ? sharing.remaining() : limit;
    try {
      hasFailed = true;
      KeyCollection.Result result = collection.await(Math.min(limit, shared));
      hasFailed = result.isFailure();
      isRefused = result.keys() == null && !hasFailed;
      reason = result.reason();
      if (result.keys() != null) store(result.keys());
    } catch (TimeoutException late) {
      reason =
          "collecting took longer than "
              + (shared < limit
                  ? (int) IndexClient.SHARING_SECONDS + " s" : "spark.sql.broadcastTimeout");
    } catch (Throwable failure) {
      Failures.passOn(failure);
      reason = "collecting failed: " + Failures.describe(failure);
    } finally {
      if (isShort) sharing.end();
    }
    seconds = collection.seconds();
  }

  private void store(Collection<Object> found) {
    reason = null;
    if (form == Form.TUPLE) {
      keys = new CollectedKeys.Tuples(rows(found));
    } else if (form == Form.OPERANDS) {
      keys = new CollectedKeys.Operands(operandKeys(rows(found)), found.size());
    } else if (form == Form.RANGE) {
      KeyRanges ranges = KeyRanges.of((StructType) filter.child().dataType(), rows(found));
      keys = new CollectedKeys.Ranges(inversion == null ? ranges : inversion.ranges(ranges));
      if (inversion != null) {
        original = new KeyValues.Of(joinExpression(), null, ranges, dimension());
      }
    } else {
      List<Object> values = found.stream().filter(Objects::nonNull).toList();
      KeyForms forms = KeyForms.of(joinExpression(), values, dimension());
      original = forms.original();
      KeyValues ofColumn = forms.ofColumn();
      keys =
          ofColumn.ranges() != null
              ? new CollectedKeys.Ranges(ofColumn.ranges())
              : new CollectedKeys.Values(ofColumn.values());
    }
  }

  private List<KeyForms> operandKeys(List<InternalRow> rows) {
    List<KeyForms> out = new ArrayList<>();
    for (Expression operand : operands()) {
      int at = out.size();
      List<Object> values =
          rows.stream()
              .filter(Objects::nonNull)
              .map(row -> row.get(at, operand.dataType()))
              .filter(Objects::nonNull) // a null equals nothing
              .distinct()
              .toList();
      out.add(KeyForms.of(operand, values, dimension()));
    }
    return out;
  }

  private static List<InternalRow> rows(Collection<Object> found) {
    return found.stream().map(InternalRow.class::cast).toList();
  }

  public Map<String, Object> describe() {
    Map<String, Object> out = new HashMap<>();
    out.put("dimension", dimension());
    if (column() != null) out.put("column", Conditions.shape(column()));
    if (isRow()) out.put("column", TupleRow.shape(filter.child()));
    if (keys != null) out.put("keys", keys.size());
    if (ranges() != null) out.put("what", "ranges");
    if (tuples() != null || operandKeys() != null) out.put("what", "tuples");
    if (reason != null) out.put("reason", reason);
    out.put("seconds", seconds);
    out.put("how", filter == null ? "" : describeOrigin());
    return out;
  }

  private String describeOrigin() {
    if (isBroadcast()) return "from the broadcast";
    if (collection == null || !collection.isShared()) return "read again";
    return isShuffle() ? "from the shuffle" : "from the broadcast";
  }
}
