package rewrite.jvm;

import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.apache.spark.sql.internal.SQLConf;

/**
 * The bridge to Python: which tables have an index, and what an index says about one scan.
 *
 * <p>Java collects and applies, Python decides. A question waits at most `spark.skipping.timeout`;
 * whatever goes wrong, the answer is "nothing is disproved" with the reason: the scan reads all.
 */
public final class Skipping {
  /** Prefix of every setting. */
  public static final String PREFIX = "spark.skipping.";

  private static final double DEFAULT_TIMEOUT = 2.0;
  private static final long DEFAULT_MAX_BYTES = 32L << 20;

  private final Callback python;
  private final Map numbers = new ConcurrentHashMap();
  private final ExecutorService threads = Executors.newCachedThreadPool(new Daemons());
  private final Scans scans = new Scans(this);
  private final Executions executions = new Executions(scans);
  private final History history = new History();
  private final Budgets patience = new Budgets();
  private volatile Map indexed = Collections.emptyMap();
  private final AtomicLong plans = new AtomicLong();
  private volatile boolean attached = true;

  /** `python` answers messages; see Callback, Question and Answer. */
  public Skipping(Function python) {
    this.python = new Callback(python);
  }

  /** Replaces what is known: from each table with an index to the identities of the columns in it.
      Python calls it every `cache.ttl`. */
  public void setIndexed(Map tables) {
    Map known = new HashMap();
    for (Iterator each = tables.keySet().iterator(); each.hasNext(); ) {
      Object table = each.next();
      known.put(table, new HashSet((Collection) tables.get(table)));
    }
    indexed = known;
  }

  /** Whether queries are looked at; `rewrite.disable` makes everything pass through. */
  public void setAttached(boolean attached) {
    this.attached = attached;
  }

  /** Notes that the plan hook ran. */
  public void planned() {
    plans.incrementAndGet();
    patience.plan();
  }

  /** How often the plan hook ran. */
  public long plans() {
    return plans.get();
  }

  /** Describes the scans of plans. */
  public Scans scans() {
    return scans;
  }

  /** What was executed; a listener to be added to the Spark context. */
  public Executions executions() {
    return executions;
  }

  /** Whether a table has an index, as far as is known here. */
  public boolean hasIndex(String table) {
    return indexed.containsKey(table);
  }

  /** Whether a column is in a table's index. */
  public boolean hasIndex(String table, String column) {
    Set columns = (Set) indexed.get(table);
    return columns != null && columns.contains(column);
  }

  /** How questions with the keys of joins went. */
  public History history() {
    return history;
  }

  /** Threads that do not keep the JVM alive, as many as there is work. */
  public ExecutorService threads() {
    return threads;
  }

  /** Whether the keys of joins are collected. Spark plans its dynamic-pruning expressions only
      where its own switch is on. */
  public boolean collectsKeys() {
    return attached && !indexed.isEmpty() && enabled() && isTrue("dynamic.enabled")
        && conf().dynamicPartitionPruningEnabled();
  }

  /** Whether keys also drop rows in the files that are read. */
  public boolean filtersRows() {
    return isTrue("dynamic.rows");
  }

  /** How long the query which is executed may wait for keys; Spark waits so long for a broadcast. */
  Budget patience() {
    long seconds = conf().broadcastTimeout();
    return patience.now(seconds > 0 ? seconds : Long.MAX_VALUE);
  }

  /** Bytes of keys that one dimension may have; no limit if not above zero. */
  public long maxBytes() {
    return Units.bytes(conf().getConfString(PREFIX + "dynamic.maxBytes", ""), DEFAULT_MAX_BYTES);
  }

  /** Why no index would be asked about a scan with these filters; null: it would. */
  public String refusal(IndexedScan scan, List filters) {
    if (scan == null) {
      return "no query on a Delta or Iceberg table, or on a Parquet table without buckets and ids";
    }
    if (!attached) return "rewrite.disable was called";
    if (!enabled()) return PREFIX + "enabled is false";
    if (!hasIndex(scan.table())) return "the table has no index";
    if (filters.isEmpty()) return "no condition of the query reached this scan";
    return null;
  }

  /** Asks the index of the scan's table what the filters and the keys of joins disprove. */
  public Answer ask(IndexedScan scan, List filters, List keys) {
    try {
      Answer answer = new Answer(call(message(scan, filters, keys), timeout()));
      if (answer.index() != null) answer.number(numbers(answer));
      return answer;
    } catch (Throwable failure) {
      if (strict()) throw new Unanswered(failure);
      return Answer.failed(reason(failure));
    }
  }

  private static byte[] message(IndexedScan scan, List filters, List keys) {
    Question question = new Question();
    String tree = new Filters(scan.columns(), question).all(filters, keys);
    return question.message(
        "{\"op\":\"disproved\",\"table\":" + Question.quote(scan.table())
            + ",\"settings\":" + settings() + ",\"filters\":" + tree + "}");
  }

  /** The files' numbers in an index, fetched once a generation. */
  private FileNumbers numbers(Answer answer) throws Exception {
    FileNumbers held = (FileNumbers) numbers.get(answer.table());
    if (held != null && held.isOf(answer.index(), answer.generation())) return held;
    byte[] message = new Question().message(
        "{\"op\":\"files\",\"index\":" + Question.quote(answer.index()) + ",\"table\":"
            + Question.quote(answer.table()) + ",\"settings\":" + settings() + "}");
    FileNumbers fetched = new FileNumbers(call(message, timeout()));
    numbers.put(answer.table(), fetched);
    return fetched;
  }

  private byte[] call(final byte[] message, double seconds) throws Exception {
    return (byte[]) threads
        .submit(new Callable() {
          public Object call() throws Exception {
            return python.call(message);
          }
        })
        .get((long) (seconds * 1000), TimeUnit.MILLISECONDS);
  }

  private static String reason(Throwable failure) {
    if (failure instanceof java.util.concurrent.TimeoutException) {
      return "the index did not answer within " + PREFIX + "timeout";
    }
    Throwable cause = failure.getCause() == null ? failure : failure.getCause();
    return "asking the index failed: " + cause.getClass().getSimpleName();
  }

  private static SQLConf conf() {
    return org.apache.spark.sql.internal.SQLConf$.MODULE$.get();
  }

  private static boolean enabled() {
    return isTrue("enabled");
  }

  private static boolean isTrue(String name) {
    return !"false".equalsIgnoreCase(conf().getConfString(PREFIX + name, "true").trim());
  }

  private static boolean strict() {
    return "strict".equalsIgnoreCase(conf().getConfString(PREFIX + "mode", "fallback").trim());
  }

  /** Seconds that a query waits for what is asked. */
  static double timeout() {
    return Units.seconds(conf().getConfString(PREFIX + "timeout", ""), DEFAULT_TIMEOUT);
  }

  private static String settings() {
    return settings(conf());
  }

  /** A session's settings of this project as JSON. */
  public static String settings(SQLConf conf) {
    StringBuilder out = new StringBuilder("{");
    scala.collection.Iterator each = conf.getAllConfs().iterator();
    while (each.hasNext()) {
      scala.Tuple2 pair = (scala.Tuple2) each.next();
      if (((String) pair._1()).startsWith(PREFIX)) {
        out.append(out.length() == 1 ? "" : ",").append(Question.quote((String) pair._1()));
        out.append(':').append(Question.quote((String) pair._2()));
      }
    }
    return out.append('}').toString();
  }

  /** Threads that do not keep the JVM alive. */
  private static final class Daemons implements ThreadFactory {
    public Thread newThread(Runnable work) {
      Thread thread = new Thread(work, "skipping-ask");
      thread.setDaemon(true);
      return thread;
    }
  }
}
