package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.BaseSubqueryExec;
import org.apache.spark.sql.execution.InSubqueryExec;
import org.apache.spark.sql.execution.ReusedSubqueryExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SubqueryBroadcastExec;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import rewrite.jvm.bridge.Budget;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.Composites;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.PredicateEncoder;
import rewrite.jvm.shims.Sessions;

/**
 * The keys of one dimension that a scan waits for: a list of values, or unavailable and why.
 *
 * <p>Unavailable means that every file is read; no keys at all means that none is. Collected on
 * threads of our own, so that Spark's pools for subqueries cannot run dry.
 */
public final class JoinKeySet implements KeyValues {
  private static final String TOO_MANY = "there are more than spark.skipping.dynamic.maxBytes hold";

  private static final String TOO_MANY_TUPLES = "there are many tuples";

  private final InSubqueryExec in;
  private final boolean areRanges;
  private final boolean areTuples;
  private final Inversion cast;
  private final String dimension;
  private final PruningFeedback feedback;
  private String fleeting;
  private List values;
  private KeyRanges ranges;
  private AskedKeys given;
  private Collection tuples;
  private String reason = "collected when the query runs";
  private double seconds;
  private boolean isLost;
  private volatile boolean isShared;
  private boolean keepsRows;
  private int mostTuples = PredicateEncoder.FEW_TUPLES;

  /** `isAside`: the keys are pairs of ends, or tuples. */
  private JoinKeySet(
      InSubqueryExec in, boolean isAside, String dimension, PruningFeedback feedback) {
    this.in = in;
    this.feedback = feedback;
    this.areTuples = isAside && TupleRow.areOf(in.child());
    this.areRanges = isAside && !areTuples;
    this.cast = in == null || areTuples ? null : Inversion.of(asked());
    this.dimension = dimension;
  }

  /** Whether both are columns of the same rows: of one broadcast, that of one join. */
  boolean isOfOneJoin(JoinKeySet other) {
    return feedback != null && feedback.areOfOneJoin(in.exprId(), other.in.exprId())
        && broadcast().isOf(other.broadcast());
  }

  /** The keys that a condition of a physical plan stands for; null: it is none of ours or of
      Spark's dynamic pruning. */
  public static JoinKeySet of(Expression condition, PruningFeedback feedback) {
    Expression dynamic = Conditions.dynamic(condition);
    if (dynamic == null) return null;
    Expression child = dynamic.children().apply(0);
    if (child instanceof InSubqueryExec) {
      InSubqueryExec in = (InSubqueryExec) child;
      JoinKeySet set =
          new JoinKeySet(
              in, Conditions.isAside(condition), feedback.dimension(in.exprId()), feedback);
      set.fleeting = feedback.fleeting(in.exprId());
      return set.fleeting == null || set.isDue() ? set : none(set.elsewhere());
    }
    return none("Spark does not broadcast it, and to read it a second time is too dear");
  }

  private static JoinKeySet none(String reason) {
    JoinKeySet none = new JoinKeySet(null, false, "a dimension", null);
    none.reason = reason;
    return none;
  }

  private String elsewhere() {
    return "the dimension has " + fleeting + ", and no join in the scan's own stage has these rows";
  }

  /**
   * Gives the keys up unless the join that they are of sees the same rows.
   *
   * <p>What may have other rows each time that it is computed is only good where it is not computed
   * twice: `stage` is the plan that the `scan` is in.
   */
  public void keepIfJoined(SparkPlan stage, SparkPlan scan) {
    if (fleeting == null || !isAvailable() || broadcast().isJoined(stage, scan)) return;
    values = null;
    ranges = null;
    given = null;
    tuples = null;
    reason = elsewhere();
  }

  /** What has to be one of the keys; null if there is nothing to collect, or it is several
      columns. */
  public Expression column() {
    if (in == null || areTuples) return null;
    return cast == null ? asked() : cast.column();
  }

  /** The keys as they are compared with an expression; null: it is bare, or there are none. */
  public KeyValues given() {
    return given;
  }

  /** The other side of the comparison in the join, of keys of one column. */
  public Expression asked() {
    if (!areRanges) return in.child();
    Expression named = in.child().children().apply(1);
    return named.children().apply(0); // of the mark that it may be null
  }

  public InSubqueryExec expression() {
    return in;
  }

  public String dimension() {
    return dimension;
  }

  public List values() {
    return values;
  }

  public KeyRanges ranges() {
    return ranges;
  }

  /** Rows of several columns' keys, where they were asked for and are few; else null. */
  Collection tuples() {
    return tuples;
  }

  /** Has tuples that the index has a composite for be as many as there are. */
  private void takeTuplesOf(Composites composites) {
    if (areTuples && composites.areAskedBy(TupleRow.columns(in.child()))) {
      mostTuples = Integer.MAX_VALUE;
    }
  }

  /** Has them leave out files only. */
  public void keepRows() {
    keepsRows = true;
  }

  /** Whether they are to drop rows, too: not if an expression would be evaluated, which may fail on
      a row that never gets to the join. */
  public boolean dropsRows() {
    return values != null && !keepsRows && Conditions.path(Inversion.column(column())) != null;
  }

  /** Whether there are values, ranges, or tuples. */
  public boolean isAvailable() {
    return values != null || ranges != null || tuples != null;
  }

  /** Whether they were to be collected, and could not be: too many, too late, a failure. */
  public boolean isLost() {
    return isLost;
  }

  /** How long collecting took. */
  public double seconds() {
    return seconds;
  }

  /** Why there are no values; null: there are. */
  public String reason() {
    return reason;
  }

  /** Whether the query runs, so that keys can be collected now; what was given up waits for
      nothing. Without adaptive execution the rules see plans long before, and in EXPLAIN, which
      must not run anything. */
  public boolean isDue() {
    return in == null || child() instanceof AdaptiveSparkPlanExec;
  }

  /** Whether Spark broadcasts the dimension anyway; else it is read a second time. */
  public boolean isBroadcast() {
    return in != null && subquery() instanceof SubqueryBroadcastExec;
  }

  /** The broadcast that it is taken from, or null. */
  BroadcastKeys broadcast() {
    return isBroadcast() ? new BroadcastKeys((SubqueryBroadcastExec) subquery()) : null;
  }

  private BaseSubqueryExec subquery() {
    BaseSubqueryExec plan = in.plan();
    return plan instanceof ReusedSubqueryExec ? ((ReusedSubqueryExec) plan).child() : plan;
  }

  private SparkPlan child() {
    return subquery().children().apply(0);
  }

  /** Takes what Spark collected itself, if it fits into `maxBytes`. */
  public void take(InSubqueryExec finished, long maxBytes) {
    take(
        finished == null || finished.values().isEmpty()
            ? null
            : java.util.Arrays.asList(finished.values().get()),
        maxBytes);
  }

  /** The same of values; null: there are none. */
  public void take(Collection found, long maxBytes) {
    if (found == null) {
      reason = "Spark did not collect them";
      return;
    }
    KeyBytes bytes = new KeyBytes(in.child().dataType(), maxBytes);
    for (java.util.Iterator each = found.iterator(); each.hasNext(); ) {
      if (!bytes.fits(each.next())) {
        reason = TOO_MANY;
        isLost = true;
        return;
      }
    }
    take(found);
  }

  /**
   * Collects the keys of several dimensions, at once.
   *
   * <p>All that a query waits for keys, in whatever scans, is `spark.sql.broadcastTimeout`. Where
   * the query is cancelled meanwhile this throws what Spark does, and what is under way ends.
   */
  public static void collect(List sets, Composites composites, IndexClient client) {
    List running = new ArrayList();
    Budget patience = client.patience();
    boolean whole = false;
    patience.begin();
    try {
      for (int i = 0; i < sets.size(); i++) {
        JoinKeySet set = (JoinKeySet) sets.get(i);
        set.takeTuplesOf(composites);
        if (set.in != null) running.add(set.start(client));
      }
      for (int i = 0; i < running.size(); i++) {
        Run run = (Run) running.get(i);
        run.set.await(run, patience);
      }
      whole = true;
    } finally {
      patience.end();
      for (int i = 0; i < running.size(); i++) {
        ((Run) running.get(i)).stop(!whole);
      }
    }
  }

  private Run start(IndexClient client) {
    Run run = new Run(this, client.maxBytes());
    run.session = in.plan().session();
    run.sessionTags = ScalaInterop.asJava(Sessions.tags(run.session));
    run.future = Sessions.submit(run.session, client.threads(), run);
    return run;
  }

  private void await(Run run, Budget patience) {
    try {
      isLost = true;
      Collection found = (Collection) run.future.get(patience.left(), TimeUnit.NANOSECONDS);
      isLost = found == null;
      if (found == null) {
        boolean areMany = areTuples && mostTuples < Integer.MAX_VALUE;
        reason = areMany ? TOO_MANY_TUPLES : TOO_MANY;
      } else {
        take(found);
      }
    } catch (TimeoutException late) {
      reason = "collecting took longer than spark.sql.broadcastTimeout";
    } catch (Throwable failure) {
      Failures.passOn(failure);
      reason = "collecting failed: " + Failures.describe(failure);
    }
    seconds = (System.nanoTime() - run.began) / 1e9;
  }

  /** Takes values that were collected for it. */
  private void take(Collection found) {
    reason = null;
    if (areTuples) {
      tuples = found;
      return;
    }
    if (areRanges) {
      KeyRanges pairs = KeyRanges.of((StructType) in.child().dataType(), found);
      ranges = cast == null ? pairs : cast.ranges(pairs);
      if (cast != null) given = new AskedKeys(asked(), null, pairs, dimension);
      return;
    }
    List kept = new ArrayList(found.size());
    for (java.util.Iterator each = found.iterator(); each.hasNext(); ) {
      Object value = each.next();
      if (value != null) kept.add(value); // a null matches nothing
    }
    if (cast != null) given = new AskedKeys(asked(), kept, null, dimension);
    if (cast != null && cast.givesRanges()) {
      ranges = cast.ranges(kept);
    } else {
      values = cast == null ? kept : cast.values(kept);
    }
  }

  /** For explain. */
  public Map describe() {
    Map out = new HashMap();
    out.put("dimension", dimension);
    if (column() != null) out.put("column", Conditions.shape(column()));
    if (areTuples) out.put("column", TupleRow.shape(in.child()));
    if (values != null) out.put("keys", Integer.valueOf(values.size()));
    if (ranges != null) out.put("keys", Integer.valueOf(ranges.size()));
    if (ranges != null) out.put("what", "ranges");
    if (tuples != null) out.put("keys", Integer.valueOf(tuples.size()));
    if (tuples != null) out.put("what", "tuples");
    if (reason != null) out.put("reason", reason);
    out.put("seconds", Double.valueOf(seconds));
    out.put("how", in == null ? "" : how());
    return out;
  }

  private String how() {
    if (isBroadcast()) return "from the broadcast";
    return isShared ? "from the shuffle" : "read again";
  }

  /** One collection under way. */
  private static final class Run extends scala.runtime.AbstractFunction0 {
    private final JoinKeySet set;
    private final long maxBytes;
    private final String tag = "skipping-keys-" + UUID.randomUUID();
    private final long began = System.nanoTime();
    private SparkSession session;
    private List sessionTags;
    private Future future;
    private Thread thread;
    private boolean stopped;

    Run(JoinKeySet set, long maxBytes) {
      this.set = set;
      this.maxBytes = maxBytes;
    }

    public Object apply() {
      if (!begin()) return null;
      session.sparkContext().addJobTag(tag);
      // A query that runs within another one, as Delta's do, takes those of the session with it.
      for (int i = 0; i < sessionTags.size(); i++) {
        session.sparkContext().addJobTag((String) sessionTags.get(i));
      }
      try {
        return set.isBroadcast() ? broadcast() : compute();
      } finally {
        end();
        session.sparkContext().removeJobTag(tag);
      }
    }

    private synchronized boolean begin() {
      if (!stopped) thread = Thread.currentThread();
      return !stopped;
    }

    /** Notes what it computes, which `stop` goes by; false: it was stopped before. */
    private synchronized boolean takes(boolean isShared) {
      set.isShared = isShared && !stopped;
      return !stopped;
    }

    private synchronized void end() {
      thread = null;
      Thread.interrupted(); // of `stop`, and not of the thread's next work
    }

    /** Ends what is under way. A broadcast or shuffle is the query's own, and goes on with it. */
    void stop(boolean withQuery) {
      if (future.isDone()) return;
      synchronized (this) {
        if (!withQuery && (set.isBroadcast() || set.isShared)) return;
        stopped = true;
        if (thread != null) thread.interrupt();
      }
      // Last: a job that was submitted before the interrupt has its tag.
      session.sparkContext().cancelJobsWithTag(tag);
    }

    /** The keys; null if there are more than fit, which is known before they are all fetched. */
    private Collection compute() {
      SparkPlan shared = SharedShuffle.of(set.child());
      if (!takes(shared != null)) return null;
      SparkPlan plan = shared == null ? set.child() : shared;
      DataType type = set.in.child().dataType();
      int most = KeyBytes.most(type, maxBytes);
      if (set.areTuples) most = Math.min(most, set.mostTuples);
      if (maxBytes > 0 && KeyBytes.varies(type)) {
        Collection known = KeyBytes.fetch(plan, type, most, maxBytes);
        if (known != KeyBytes.LONG) return known;
      }
      InternalRow[] rows = plan.executeTake(most + 1);
      if (rows.length > most) return null;
      KeyBytes bytes = new KeyBytes(type, maxBytes);
      List out = new ArrayList(rows.length);
      for (int i = 0; i < rows.length; i++) {
        out.add(rows[i].get(0, type));
        if (!bytes.fits(out.get(i))) return null;
      }
      return out;
    }

    private Collection broadcast() {
      BroadcastKeys keys = set.broadcast();
      Collection rows =
          keys.rows(
              Collections.singletonList(Integer.valueOf(keys.index())), Integer.MAX_VALUE,
              maxBytes);
      if (rows == null) return null;
      List out = new ArrayList(rows.size());
      for (java.util.Iterator each = rows.iterator(); each.hasNext(); ) {
        out.add(((InternalRow) each.next()).get(0, keys.type(keys.index())));
      }
      return out;
    }
  }
}
