package rewrite.jvm;

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
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.BaseSubqueryExec;
import org.apache.spark.sql.execution.InSubqueryExec;
import org.apache.spark.sql.execution.ReusedSubqueryExec;
import org.apache.spark.sql.execution.SQLExecution$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SubqueryBroadcastExec;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.types.DataType;

/**
 * The keys of one dimension that a scan waits for: a list of values, or unavailable and why.
 *
 * <p>Unavailable means that every file is read; no keys at all means that none is. Collected on
 * threads of our own, so that Spark's pools for subqueries cannot run dry.
 */
public final class KeySet {
  private static final int LEAST_WIDTH = 8;

  private final InSubqueryExec in;
  private final String dimension;
  private List values;
  private String reason = "collected when the query runs";
  private double seconds;

  private KeySet(InSubqueryExec in, String dimension) {
    this.in = in;
    this.dimension = dimension;
  }

  /** The keys behind a dynamic-pruning expression's child. */
  public static KeySet of(Expression child, History history) {
    if (child instanceof InSubqueryExec) {
      InSubqueryExec in = (InSubqueryExec) child;
      return new KeySet(in, history.dimension(in.exprId()));
    }
    KeySet none = new KeySet(null, "a dimension");
    none.reason = "Spark does not broadcast it, and to read it a second time is too dear";
    return none;
  }

  /** What has to be one of the keys; null if there is nothing to collect. */
  public Expression column() {
    return in == null ? null : in.child();
  }

  public InSubqueryExec expression() {
    return in;
  }

  public String dimension() {
    return dimension;
  }

  /** The values, none of them null; null: unavailable. */
  public List values() {
    return values;
  }

  /** Why there are no values; null: there are. */
  public String reason() {
    return reason;
  }

  /** Whether the query runs, so that keys can be collected now. Without adaptive execution the
      rules see plans long before, and in EXPLAIN, which must not run anything. */
  public boolean isDue() {
    return in != null && child() instanceof AdaptiveSparkPlanExec;
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
    return (SparkPlan) subquery().children().apply(0);
  }

  /** Takes what Spark collected itself. */
  public void take(InSubqueryExec finished) {
    if (finished == null || finished.values().isEmpty()) {
      reason = "Spark did not collect them";
      return;
    }
    take(java.util.Arrays.asList((Object[]) finished.values().get()));
  }

  /** Collects the keys of several dimensions, at once. */
  public static void collect(List sets, Skipping skipping) {
    List running = new ArrayList();
    for (int i = 0; i < sets.size(); i++) {
      KeySet set = (KeySet) sets.get(i);
      running.add(set.in == null ? null : set.start(skipping));
    }
    for (int i = 0; i < sets.size(); i++) {
      if (running.get(i) != null) ((KeySet) sets.get(i)).await((Run) running.get(i));
    }
  }

  private Run start(Skipping skipping) {
    Run run = new Run(this, skipping.maxBytes());
    run.session = in.plan().session();
    run.future =
        SQLExecution$.MODULE$.withThreadLocalCaptured(run.session, skipping.threads(), run);
    return run;
  }

  private void await(Run run) {
    try {
      Collection found = (Collection) run.future.get(run.patience(), TimeUnit.SECONDS);
      if (found == null) {
        reason = "there are more than spark.skipping.dynamic.maxBytes hold";
      } else {
        take(found);
      }
    } catch (TimeoutException late) {
      reason = "collecting took longer than spark.sql.broadcastTimeout";
      run.session.sparkContext().cancelJobsWithTag(run.tag);
    } catch (Throwable failure) {
      Throwable cause = failure.getCause() == null ? failure : failure.getCause();
      reason = "collecting failed: " + cause.getClass().getSimpleName();
      if (failure instanceof InterruptedException) {
        // The query itself is being stopped.
        run.session.sparkContext().cancelJobsWithTag(run.tag);
        Thread.currentThread().interrupt();
      }
    }
    seconds = (System.nanoTime() - run.began) / 1e9;
  }

  /** Takes values that Spark collected for it. */
  void take(Collection found) {
    List kept = new ArrayList(found.size());
    for (java.util.Iterator each = found.iterator(); each.hasNext(); ) {
      Object value = each.next();
      if (value != null) kept.add(value); // a null matches nothing
    }
    values = kept;
    reason = null;
  }

  /** For explain. */
  public Map describe() {
    Map out = new HashMap();
    out.put("dimension", dimension);
    if (in != null) out.put("column", Filters.shape(in.child()));
    if (values != null) out.put("keys", Integer.valueOf(values.size()));
    if (reason != null) out.put("reason", reason);
    out.put("seconds", Double.valueOf(seconds));
    out.put("how", in == null ? "" : isBroadcast() ? "from the broadcast" : "read again");
    return out;
  }

  /** One collection under way. */
  private static final class Run extends scala.runtime.AbstractFunction0 {
    private final KeySet set;
    private final long maxBytes;
    private final String tag = "skipping-keys-" + UUID.randomUUID();
    private final long began = System.nanoTime();
    private SparkSession session;
    private Future future;

    Run(KeySet set, long maxBytes) {
      this.set = set;
      this.maxBytes = maxBytes;
    }

    long patience() {
      long timeout = session.sessionState().conf().broadcastTimeout();
      return timeout > 0 ? timeout : Long.MAX_VALUE / 1000000000L;
    }

    /** How many keys fit. */
    private int most() {
      long width = Math.max(LEAST_WIDTH, set.in.child().dataType().defaultSize());
      return maxBytes <= 0 ? Integer.MAX_VALUE - 1 : (int) Math.min(maxBytes / width, 1 << 30);
    }

    public Object apply() {
      session.sparkContext().addJobTag(tag);
      try {
        return set.isBroadcast() ? broadcast() : readAgain();
      } finally {
        session.sparkContext().removeJobTag(tag);
      }
    }

    private Collection readAgain() {
      int most = most();
      InternalRow[] rows = (InternalRow[]) set.child().executeTake(most + 1);
      if (rows.length > most) return null;
      DataType type = set.in.child().dataType();
      List out = new ArrayList(rows.length);
      for (int i = 0; i < rows.length; i++) {
        out.add(rows[i].get(0, type));
      }
      return out;
    }

    private Collection broadcast() {
      BroadcastKeys keys = set.broadcast();
      Collection rows = keys.rows(Collections.singletonList(Integer.valueOf(keys.index())), most());
      if (rows == null) return null;
      List out = new ArrayList(rows.size());
      for (java.util.Iterator each = rows.iterator(); each.hasNext(); ) {
        out.add(((InternalRow) each.next()).get(0, keys.type(keys.index())));
      }
      return out;
    }
  }
}
