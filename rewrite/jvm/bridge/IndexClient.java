package rewrite.jvm.bridge;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.util.ThreadUtils;

/**
 * Finds the tables with an index, and the files that an index prunes for one scan.
 *
 * <p>All lookups of a query together wait at most `spark.skipping.timeout`. If anything fails, the
 * response prunes nothing and has the reason, and the scan reads all files. Each session sees the
 * tables of the store in its settings.
 */
public final class IndexClient {
  /** Prefix of the identity of an indexed expression. */
  public static final String EXPRESSION = "expr:";

  /** Prefix of the identity of a multi-column index; a JSON list of its columns follows. */
  public static final String COMPOSITE = "tuple:";

  /** Why a scan without conditions needs no lookup. */
  public static final String NO_CONDITION = "no condition of the query reached this scan";

  /** How long all scans of a query wait for shuffles that it computes anyway. */
  public static final double SHARING_SECONDS = 30;

  private static final double LOADING = 60; // seconds to load files in the background
  private static final double WRITING = 10; // seconds for a condition or a section of a page
  private static final long PAUSE = 200; // milliseconds, while Python itself loads the files
  private static final int MAX_THREADS = 128; // like Spark's limit for its broadcasts

  private final PythonCallback python;
  private final OrdinalCache ordinals = new OrdinalCache();
  private final ExecutorService threads =
      ThreadUtils.newDaemonCachedThreadPool("skipping-keys", MAX_THREADS, 60);
  private final SettingNumbers numbers;
  private final SessionSettings settings;
  private final Budgets budgets = new Budgets();
  private final Budgets patience = new Budgets();
  private final Budgets sharing = new Budgets();
  private final ConcurrentHashMap<String, Indexes> indexes = new ConcurrentHashMap<>();
  private final AtomicLong plans = new AtomicLong();
  private volatile boolean isAttached;

  public IndexClient(PythonCallback python) {
    this.python = python;
    numbers = new SettingNumbers(python);
    settings = new SessionSettings(numbers);
  }

  /** Replaces the indexes under a name of settings: JSON with columns and revision for each table.
      Python calls it every `cache.ttl`. */
  public void setIndexes(String name, String tables) throws IOException {
    Map<String, Object> objects = Json.read(tables.getBytes(StandardCharsets.UTF_8));
    indexes.put(name, new Indexes(Json.records(objects, Index.class), null));
    indexes.keySet().retainAll(settings.names());
  }

  public SessionSettings settings() {
    return settings;
  }

  /** Turns skipping on, or off for all sessions, as `rewrite.disable` does. */
  public void attach(boolean isAttached) {
    this.isAttached = isAttached;
  }

  /** Whether the session skips files at all. */
  public boolean isOn() {
    return isAttached && SkippingConf.isEnabled();
  }

  /** Whether the keys of joins are collected. */
  public boolean collectsKeys() {
    return isAttached && SkippingConf.collectsKeys();
  }

  /** Counts a run of the plan rule, with which a thread may begin new budgets. */
  public void countPlan() {
    plans.incrementAndGet();
    budgets.beginPlan();
    patience.beginPlan();
    sharing.beginPlan();
  }

  /** Begins the lookups of another plan, before the plan rule runs. */
  public void beginPlan() {
    budgets.beginPlan();
  }

  public long plans() {
    return plans.get();
  }

  public Budgets budgets() {
    return budgets;
  }

  /** Returns the current query's budget for lookups. */
  public Budget budget() {
    return budgets.current(numbers.get("timeout", SettingNumbers.TIMEOUT));
  }

  /** Whether a table has an index, as far as Java knows. */
  public boolean hasIndex(String table) {
    return indexes().ofTables.containsKey(table);
  }

  public boolean hasIndex(String table, String column) {
    return indexes().columns(table).contains(column);
  }

  /** Returns a text that changes whenever the columns in a table's index, or their types, change;
      null without an index. */
  public String revision(String table) {
    Index index = indexes().ofTables.get(table);
    return index == null ? null : index.revision;
  }

  /** Returns the identities of the expressions in a table's index. */
  public Set<String> expressions(String table) {
    return identities(table, EXPRESSION).collect(Collectors.toSet());
  }

  /** Returns the columns of each multi-column index of a table. */
  public List<List<String>> composites(String table) {
    return identities(table, COMPOSITE)
        .map(identity -> Json.readTexts(identity.substring(COMPOSITE.length())))
        .toList();
  }

  private Stream<String> identities(String table, String prefix) {
    return indexes().columns(table).stream().filter(identity -> identity.startsWith(prefix));
  }

  /** Returns the indexes in this session's store. For new settings this sends a request to Python;
      if that fails, the session has no indexes until Python reports some. */
  private Indexes indexes() {
    String name = settings.name(SkippingConf.current());
    Indexes cached = indexes.get(name);
    if (cached != null) return cached;
    Indexes loaded;
    try {
      Map<String, Object> header = python.request(name, new Request.ListIndexes(), budget());
      Map<?, ?> tables = header.get(Protocol.TABLES) instanceof Map<?, ?> map ? map : Map.of();
      loaded = new Indexes(Json.records(tables, Index.class), Json.text(header, Protocol.REASON));
    } catch (Throwable failure) {
      Failures.passOn(failure);
      loaded = new Indexes(Map.of(), reason(failure));
    }
    Indexes earlier = indexes.putIfAbsent(name, loaded);
    return earlier == null ? loaded : earlier;
  }

  /** Returns the condition on a column `ip` for a network, as Python writes it; throws
      IllegalArgumentException with the reason if the text is not a network. */
  public String condition(String network) throws Exception {
    Map<String, Object> header = write(new Request.WriteCondition(network));
    if (!header.containsKey(Protocol.VALUE)) {
      throw new IllegalArgumentException(Json.text(header, Protocol.REASON));
    }
    return Json.text(header, Protocol.VALUE);
  }

  /** Returns a section of the tab in Spark's UI, as HTML that Python writes. */
  public String section(String name) throws Exception {
    return Json.text(write(new Request.WriteSection(name)), Protocol.VALUE);
  }

  private Map<String, Object> write(Request request) throws Exception {
    Map<String, Object> header = python.request("", request, new Budget(WRITING));
    if (Boolean.TRUE.equals(header.get(Protocol.FAILED))) {
      throw new IOException(Json.text(header, Protocol.REASON));
    }
    return header;
  }

  /** Returns threads that do not keep the JVM alive. If all are busy, work waits as long as the
      query does. They are not the threads that call Python, so work on them may do lookups. */
  public ExecutorService threads() {
    return threads;
  }

  /** Returns how long the current query may wait for keys, which is as long as Spark waits for a
      broadcast. */
  public Budget patience() {
    return patience.current(SkippingConf.patience());
  }

  /** Returns how long the current query may still wait for shuffles that it computes anyway.
      Meanwhile adaptive execution begins nothing else. */
  public Budget sharing() {
    return sharing.current(SHARING_SECONDS);
  }

  /** Returns the maximum bytes of keys that one dimension may have; unlimited if not above zero. */
  public long maxBytes() {
    return (long) numbers.get("dynamic.maxBytes", SettingNumbers.MAX_BYTES);
  }

  /** Returns why a scan needs no lookup; null if it does. The table is null if the scan is of none
      that may have an index. */
  public String refusal(String table, boolean hasConditions) {
    if (table == null) {
      return "not a query on a Delta or Iceberg table, or on a Parquet table without buckets and"
          + " ids";
    }
    if (!isAttached) return "rewrite.disable was called";
    if (!SkippingConf.isEnabled()) return SkippingConf.PREFIX + "enabled is false";
    if (!hasIndex(table)) return indexes().absence(table);
    return hasConditions ? null : NO_CONDITION;
  }

  /** Sends a request for prunable files (see PredicateEncoder), and returns the response. */
  public LookupResponse findPrunable(byte[] request) {
    try {
      String name = settings.name(SkippingConf.current());
      LookupResponse response = new LookupResponse(python.call(name, request, budget()));
      if (response.failure() != null && SkippingConf.isStrict()) {
        throw new IllegalStateException(response.failure());
      }
      if (response.index() != null) response.setOrdinals(ordinals(name, response));
      return response;
    } catch (Throwable failure) {
      Failures.passOn(failure);
      if (SkippingConf.isStrict()) throw new StrictModeException(failure);
      return LookupResponse.none(reason(failure));
    }
  }

  /** Returns the ordinals of the files in an index: those that are cached, and others as long as
      half of the remaining time lasts. A thread loads the rest in the background. */
  private FileOrdinals ordinals(String name, LookupResponse response) throws Exception {
    FileOrdinals cached = ordinals.get(response.index(), response.entriesId());
    if (cached.size() >= response.files()) return cached;
    Budget budget = budget();
    long reserve = budget.remaining() / 2;
    try {
      while (cached.size() < response.files() && budget.remaining() > reserve) {
        if (!cached.add(requestFiles(name, response, cached.size(), budget))) break;
      }
    } catch (Exception failure) {
      Failures.passOn(failure);
      if (cached.size() == 0) throw failure;
    }
    if (cached.size() < response.files() && cached.beginLoading()) {
      try {
        threads.submit(() -> load(name, response, cached));
      } catch (Throwable noThread) { // the next lookup tries again
        cached.endLoading();
        Failures.passOn(noThread);
      }
    }
    return cached;
  }

  private void load(String name, LookupResponse response, FileOrdinals cached) {
    try {
      Budget budget = new Budget(LOADING);
      while (isAttached && budget.remaining() > 0) {
        byte[] page = requestFiles(name, response, cached.size(), budget);
        if (cached.add(page)) continue;
        FilePage last = new FilePage(page);
        if (last.isLast() || !response.entriesId().equals(last.entriesId())) return;
        Thread.sleep(PAUSE);
      }
    } catch (Throwable failure) {
      Failures.passOn(failure); // the next lookup continues here
    } finally {
      cached.endLoading();
    }
  }

  private byte[] requestFiles(String name, LookupResponse response, int first, Budget budget)
      throws Exception {
    Request request =
        new Request.ListFiles(response.index(), response.table(), response.entriesId(), first);
    return python.call(name, new MessageWriter().message(request), budget);
  }

  private static String reason(Throwable failure) {
    if (failure instanceof TimeoutException) {
      return "the index did not answer within " + SkippingConf.PREFIX + "timeout";
    }
    if (failure instanceof RejectedExecutionException || failure instanceof ProtocolException) {
      return failure.getMessage();
    }
    return "asking the index failed: " + Failures.describe(failure);
  }

  @JsonIgnoreProperties(ignoreUnknown = true)
  private record Index(Set<String> columns, String revision) {
    Index {
      Objects.requireNonNull(columns);
    }
  }

  /** The indexes of a store by table; `reason` is the error if they could not be read, or null. */
  private record Indexes(Map<String, Index> ofTables, String reason) {
    Set<String> columns(String table) {
      Index index = ofTables.get(table);
      return index == null ? Set.of() : index.columns;
    }

    /** Returns why a table has no index. Spark moves the files of a managed Delta table that is
        renamed: its id stays, and its index has the root before. */
    String absence(String table) {
      if (reason != null) return reason;
      int end = table.lastIndexOf('\n') + 1; // format, id and root are lines
      boolean hasId = table.indexOf('\n') + 1 < end - 1;
      return ofTables.keySet().stream()
          .filter(other -> hasId && other.startsWith(table.substring(0, end)))
          .filter(other -> other.indexOf('\n', end) < 0)
          .findFirst()
          .map(other ->
              "the table has no index since it was renamed or copied: its index is of "
                  + other.substring(end)
                  + "; see DESCRIBE SKIPPING INDEX EXTENDED")
          .orElse("the table has no index");
    }
  }
}
