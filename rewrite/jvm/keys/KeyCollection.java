package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.BaseSubqueryExec;
import org.apache.spark.sql.execution.InSubqueryExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SubqueryExec;
import org.apache.spark.sql.types.DataType;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.Sessions;

/** Collects the keys of one filtering side on a thread of this project, so that Spark's pools for
    subqueries cannot run dry. */
final class KeyCollection extends scala.runtime.AbstractFunction0<KeyCollection.Result> {
  static final String TOO_MANY = "there are more than spark.skipping.dynamic.maxBytes hold";

  private static final String TOO_MANY_TUPLES = "there are many tuples";

  /** Keys, or the reason why they are unavailable; `isFailure` if collecting them failed. Otherwise the
      query cannot provide them. */
  record Result(Collection<Object> keys, String reason, boolean isFailure) {}

  private final InSubqueryExec filter;
  private final int maxKeys;
  private final String onlyShared;
  private final long maxBytes;
  private final String tag = "skipping-keys-" + UUID.randomUUID();
  private final long began = System.nanoTime();
  private final SparkSession session;
  private final List<String> sessionTags;
  private final Future<Result> future;
  private Thread thread;
  private boolean isStopped;
  private volatile boolean isShared;
  private volatile SharedShuffle shuffle;

  /** Begin to collect at most `maxKeys` keys. They come only from a broadcast or a shuffle of
      the query if `onlyShared` is not null: what the dimension has that must not run again. */
  KeyCollection(
      InSubqueryExec filter, int maxKeys, String onlyShared, IndexClient client) {
    this.filter = filter;
    this.maxKeys = maxKeys;
    this.onlyShared = onlyShared;
    this.maxBytes = client.maxBytes();
    this.session = filter.plan().session();
    this.sessionTags = ScalaInterop.asJava(Sessions.tags(session));
    this.future = Sessions.submit(session, client.threads(), this);
  }

  /** Wait for the keys. */
  Result await(long nanoseconds) throws Exception {
    return future.get(nanoseconds, TimeUnit.NANOSECONDS);
  }

  /** Return the seconds since the start. */
  double seconds() {
    return (System.nanoTime() - began) / 1e9;
  }

  /** Whether the keys come from a shuffle of the query, or from a broadcast of Comet. */
  boolean isShared() {
    return isShared;
  }

  /** Run on the thread that collects. */
  @Override public Result apply() {
    if (!begin()) return null;
    session.sparkContext().addJobTag(tag);
    // A query that runs within another one, as Delta's do, takes the tags of the session with it.
    sessionTags.forEach(session.sparkContext()::addJobTag);
    try {
      BroadcastKeys broadcast = BroadcastKeys.of(filter);
      return broadcast == null ? compute() : result(read(broadcast));
    } finally {
      end();
      session.sparkContext().removeJobTag(tag);
    }
  }

  private synchronized boolean begin() {
    if (!isStopped) thread = Thread.currentThread();
    return !isStopped;
  }

  /** Record which plan it computes, because `stop` depends on it; false if it was stopped. */
  private synchronized boolean choose(boolean isShared) {
    this.isShared = isShared && !isStopped;
    return !isStopped;
  }

  private synchronized void end() {
    thread = null;
    Thread.interrupted(); // the interrupt of `stop` must not reach the next work of the thread
  }

  /** End what runs. A broadcast or shuffle belongs to the query, and goes on until that ends. */
  void stop(boolean withQuery) {
    if (future.isDone()) return;
    synchronized (this) {
      if (!withQuery && (isShared || BroadcastKeys.of(filter) != null)) return;
      isStopped = true;
      if (thread != null) thread.interrupt();
    }
    // Last: a job that was submitted before the interrupt has its tag.
    session.sparkContext().cancelJobsWithTag(tag);
  }

  /** Let the query read the shuffle of the keys, and no other one, however collecting them ended. Called
      on the thread that plans the query. */
  void restart() {
    SharedShuffle found = shuffle;
    if (found != null) found.restart();
  }

  /** Return the keys, unless there are more than fit, which is known before all are fetched. */
  private Result compute() {
    DataType type = filter.child().dataType();
    BaseSubqueryExec subquery = BroadcastKeys.subquery(filter);
    if (!(subquery instanceof SubqueryExec)) { // Comet's, of a broadcast in its own form
      return choose(true) ? result(fit(subquery.executeCollect(), type)) : null;
    }
    SparkPlan own = subquery.children().head();
    boolean isOnlyShared = onlyShared != null;
    SharedShuffle shared = SharedShuffle.of(own, isOnlyShared);
    if (shared == null && isOnlyShared) {
      String reason = "and no shuffle of the query has its rows before this scan";
      return new Result(null, "the dimension has " + onlyShared + ", " + reason, false);
    }
    if (shared == null) return choose(false) ? result(take(own, type)) : null;
    // Two scans must not begin the same shuffle at once: it would run twice.
    synchronized (shared.form()) {
      if (!choose(true)) return null;
      shuffle = shared;
      shared.unite();
      Collection<Object> keys;
      try {
        keys = take(shared.plan(), type);
      } catch (Throwable failure) {
        shared.evictFailed();
        throw failure;
      }
      boolean isUnited = shared.restart() && (!isOnlyShared || shared.isDeterminate());
      return isUnited || !isOnlyShared
          ? result(keys)
          : new Result(null, "Spark may compute other rows if it loses the shuffle", false);
    }
  }

  private Result result(Collection<Object> keys) {
    if (keys != null) return new Result(keys, null, false);
    return new Result(null, maxKeys < Integer.MAX_VALUE ? TOO_MANY_TUPLES : TOO_MANY, true);
  }

  private Collection<Object> take(SparkPlan plan, DataType type) {
    int most = Math.min(maxKeys, KeyBytes.maxKeys(type, maxBytes));
    if (maxBytes > 0 && KeyBytes.varies(type)) {
      List<Object> keys = KeyBytes.fetch(plan, type, most, maxBytes);
      if (keys != KeyBytes.LONG) return keys;
    }
    InternalRow[] rows = plan.executeTake(most + 1);
    return rows.length > most ? null : fit(rows, type);
  }

  /** Return the keys in rows; null if they do not fit. */
  private Collection<Object> fit(InternalRow[] rows, DataType type) {
    KeyBytes bytes = new KeyBytes(type, maxBytes);
    List<Object> keys = new ArrayList<>(rows.length);
    for (InternalRow row : rows) {
      keys.add(row.get(0, type));
      if (!bytes.fits(keys.get(keys.size() - 1))) return null;
    }
    return keys;
  }

  private Collection<Object> read(BroadcastKeys broadcast) {
    int index = broadcast.index();
    Collection<InternalRow> rows = broadcast.rows(List.of(index), Integer.MAX_VALUE, maxBytes);
    if (rows == null) return null;
    return rows.stream().map(row -> row.get(0, broadcast.type(index))).toList();
  }
}
