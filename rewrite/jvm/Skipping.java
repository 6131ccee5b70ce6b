package rewrite.jvm;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BiFunction;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.util.ThreadUtils;

/**
 * The bridge to Python: which tables have an index, and what an index says about one scan.
 *
 * <p>Java collects and applies, Python decides. The questions of a query wait, altogether, at most
 * `spark.skipping.timeout`; whatever goes wrong, the answer is "nothing is disproved" with the
 * reason: the scan reads all. Each session sees the tables of the store that its settings name.
 */
public final class Skipping {
  /** Prefix of every setting. */
  public static final String PREFIX = "spark.skipping.";

  private static final double DEFAULT_TIMEOUT = 2.0;
  private static final long DEFAULT_MAX_BYTES = 32L << 20;
  private static final int MAX_THREADS = 128; // as many as Spark has for its broadcasts

  private final Callback python;
  private final Map numbers = new Numbers();
  private final ExecutorService threads =
      ThreadUtils.newDaemonCachedThreadPool("skipping-keys", MAX_THREADS, 60);
  private final Scans scans = new Scans(this);
  private final Executions executions = new Executions(scans);
  private final History history = new History();
  private final SessionSettings settings = new SessionSettings();
  private final Budgets budgets = new Budgets();
  private final Budgets patience = new Budgets();
  private final ConcurrentHashMap indexed = new ConcurrentHashMap();
  private final AtomicLong plans = new AtomicLong();
  private volatile boolean attached = true;

  /** `python` answers messages of those who know the `secret`; large ones are left in `folder`.
      See Callback, Question and Answer. */
  public Skipping(BiFunction python, String secret, String folder) {
    this.python = new Callback(python, secret, folder);
  }

  /** Replaces what is known under a name of settings: from each table with an index, as JSON, to
      the identities of the columns in it. Python calls it every `cache.ttl`. */
  public void setIndexed(String name, String tables) throws IOException {
    indexed.put(name, columns(Json.read(tables.getBytes(StandardCharsets.UTF_8))));
    indexed.keySet().retainAll(settings.names());
  }

  private static Map columns(Map tables) {
    Map known = new HashMap();
    for (Iterator each = tables.keySet().iterator(); each.hasNext(); ) {
      Object table = each.next();
      known.put(table, new HashSet((Collection) tables.get(table)));
    }
    return known;
  }

  /** The settings of sessions by name. */
  public SessionSettings settings() {
    return settings;
  }

  /** Whether queries are looked at; `rewrite.disable` makes everything pass through. */
  public void setAttached(boolean attached) {
    this.attached = attached;
  }

  /** Notes that the plan hook ran. */
  public void planned() {
    plans.incrementAndGet();
    budgets.plan();
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

  /** What queries may spend on asking. */
  public Budgets budgets() {
    return budgets;
  }

  /** That of the query which is planned or executed. */
  Budget budget() {
    return budgets.now(Units.seconds(get("timeout", ""), DEFAULT_TIMEOUT));
  }

  /** Whether a table has an index, as far as is known here. */
  public boolean hasIndex(String table) {
    return tables().containsKey(table);
  }

  /** Whether a column is in a table's index. */
  public boolean hasIndex(String table, String column) {
    Set columns = (Set) tables().get(table);
    return columns != null && columns.contains(column);
  }

  /** The tables that have an index in this session's store. For settings that are new Python is
      asked; if it does not know, there are none until it says that there are. */
  private Map tables() {
    String name = settings.name(conf());
    Map known = (Map) indexed.get(name);
    if (known != null) return known;
    known = new HashMap();
    try {
      byte[] message = new Question().message("{\"op\":\"indexed\"}");
      Map header = Answer.header(python.call(name, message, budget()));
      if (header.get("tables") != null) known = columns((Map) header.get("tables"));
    } catch (Throwable failure) {
      Failures.passOn(failure);
    }
    Object told = indexed.putIfAbsent(name, known);
    return told == null ? known : (Map) told;
  }

  /** How questions with the keys of joins went. */
  public History history() {
    return history;
  }

  /** Threads that do not keep the JVM alive; work beyond their number waits, as long as the query
      does. Those that ask Python are others, so that what runs here may ask and be answered. */
  public ExecutorService threads() {
    return threads;
  }

  /** Whether the keys of joins are collected. Spark plans its dynamic-pruning expressions only
      where its own switch is on. */
  public boolean collectsKeys() {
    return attached && enabled() && isTrue("dynamic.enabled")
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
    return Units.bytes(get("dynamic.maxBytes", ""), DEFAULT_MAX_BYTES);
  }

  /** Why no index would be asked about a scan with these filters; null: it would. */
  public String refusal(IndexedScan scan, List filters) {
    if (scan == null) {
      return "not a query on a Delta or Iceberg table, or on a Parquet table without buckets and ids";
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
      String name = settings.name(conf());
      Answer answer = new Answer(python.call(name, message(scan, filters, keys), budget()));
      if (answer.failure() != null && strict()) throw new IllegalStateException(answer.failure());
      if (answer.index() != null) answer.number(numbers(name, answer));
      return answer;
    } catch (Throwable failure) {
      Failures.passOn(failure);
      if (strict()) throw new Unanswered(failure);
      return Answer.failed(reason(failure));
    }
  }

  private static byte[] message(IndexedScan scan, List filters, List keys) {
    Question question = new Question();
    String tree = new Filters(scan.columns(), question).all(filters, keys);
    return question.message(
        "{\"op\":\"disproved\",\"table\":" + Question.quote(scan.table())
            + ",\"filters\":" + tree + "}");
  }

  /** The files' numbers in an index, fetched once a generation. */
  private FileNumbers numbers(String name, Answer answer) throws Exception {
    FileNumbers held;
    synchronized (numbers) {
      held = (FileNumbers) numbers.get(answer.index());
    }
    if (held != null && held.isOf(answer.index(), answer.generation())) return held;
    byte[] message = new Question().message(
        "{\"op\":\"files\",\"index\":" + Question.quote(answer.index()) + ",\"table\":"
            + Question.quote(answer.table()) + "}");
    FileNumbers fetched = new FileNumbers(python.call(name, message, budget()));
    synchronized (numbers) {
      numbers.put(answer.index(), fetched);
    }
    return fetched;
  }

  private static String reason(Throwable failure) {
    if (failure instanceof TimeoutException) {
      return "the index did not answer within " + PREFIX + "timeout";
    }
    if (failure instanceof RejectedExecutionException) return failure.getMessage();
    return "asking the index failed: " + failure.getClass().getSimpleName();
  }

  private static SQLConf conf() {
    return org.apache.spark.sql.internal.SQLConf$.MODULE$.get();
  }

  private static boolean enabled() {
    return isTrue("enabled");
  }

  private static boolean isTrue(String name) {
    return !"false".equalsIgnoreCase(get(name, "true").trim());
  }

  private static boolean strict() {
    return "strict".equalsIgnoreCase(get("mode", "fallback").trim());
  }

  private static String get(String name, String otherwise) {
    return conf().getConfString(PREFIX + name, otherwise);
  }

  /** What is kept of indexes: those asked last. */
  private static final class Numbers extends LinkedHashMap {
    private static final int INDEXES = 64;
    private static final int FILES = 4000000;

    Numbers() {
      super(16, 0.75f, true);
    }

    public Object put(Object index, Object added) {
      Object before = super.put(index, added);
      int files = 0;
      for (Iterator each = values().iterator(); each.hasNext(); ) {
        files += ((FileNumbers) each.next()).size();
      }
      for (Iterator each = entrySet().iterator();
          size() > 1 && (size() > INDEXES || files > FILES); ) {
        files -= ((FileNumbers) ((Map.Entry) each.next()).getValue()).size();
        each.remove();
      }
      return before;
    }
  }
}
