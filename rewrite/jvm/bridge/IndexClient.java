package rewrite.jvm.bridge;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
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
import org.apache.spark.util.ThreadUtils;

/**
 * The bridge to Python: which tables have an index, and what an index says about one scan.
 *
 * <p>Java collects and applies, Python decides. The questions of a query wait, altogether, at most
 * `spark.skipping.timeout`; whatever goes wrong, the answer is "nothing is pruned" with the
 * reason: the scan reads all. Each session sees the tables of the store that its settings name.
 */
public final class IndexClient {
  /** What the identity of an indexed expression begins with. */
  public static final String EXPRESSION = "expr:";

  /** What that of a composite begins with; then a list in JSON of those of its columns. */
  public static final String COMPOSITE = "tuple:";

  /** Why an index is not asked about a scan without conditions. */
  public static final String NO_CONDITION = "no condition of the query reached this scan";

  private static final double LOADING = 60; // seconds for files in the background
  private static final double WRITING = 10; // seconds for a condition, without which no query runs
  private static final long PAUSE = 200; // milliseconds, while Python itself reads them

  private static final int MAX_THREADS = 128; // as many as Spark has for its broadcasts

  private final PythonCallback python;
  private final Kept ordinals = new Kept();
  private final ExecutorService threads =
      ThreadUtils.newDaemonCachedThreadPool("skipping-keys", MAX_THREADS, 60);
  private final SettingNumbers numbers;
  private final SessionSettings settings;
  private final Budgets budgets = new Budgets();
  private final Budgets patience = new Budgets();
  private final ConcurrentHashMap indexed = new ConcurrentHashMap();
  private final AtomicLong plans = new AtomicLong();
  private volatile boolean attached;

  /** `python` answers messages of those who know the `secret`; large ones are left in `folder`.
      See PythonCallback, MessageWriter and Answer. */
  public IndexClient(PythonCallback python) {
    this.python = python;
    numbers = new SettingNumbers(python);
    settings = new SessionSettings(numbers);
  }

  /** Replaces what is known under a name of settings: from each table with an index, as JSON, to
      the identities of the columns in it, and its revision. Python calls it every `cache.ttl`. */
  public void setIndexed(String name, String tables) throws IOException {
    indexed.put(name, new Indexed(Json.read(tables.getBytes(StandardCharsets.UTF_8)), null));
    indexed.keySet().retainAll(settings.names());
  }

  /** The settings of sessions by name. */
  public SessionSettings settings() {
    return settings;
  }

  /** Whether queries are looked at; `rewrite.disable` makes everything pass through. */
  public void setAttached(boolean attached) {
    this.attached = attached;
  }

  /** Whether files are skipped at all. */
  public boolean isOn() {
    return attached && SkippingConf.isEnabled();
  }

  /** Whether the keys of joins are collected. */
  public boolean collectsKeys() {
    return attached && SkippingConf.collectsKeys();
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

  /** What queries may spend on asking. */
  public Budgets budgets() {
    return budgets;
  }

  /** That of the query which is planned or executed. */
  public Budget budget() {
    return budgets.now(numbers.now("timeout", SettingNumbers.TIMEOUT));
  }

  /** Whether a table has an index, as far as is known here. */
  public boolean hasIndex(String table) {
    return tables().has(table);
  }

  /** Whether a column is in a table's index. */
  public boolean hasIndex(String table, String column) {
    return tables().columns(table).contains(column);
  }

  /** A text that changes whenever the columns in a table's index, or their types, do; null: it has
      none. */
  public String revision(String table) {
    return tables().revision(table);
  }

  /** The identities of the expressions in a table's index: mostly there are none. */
  public Set expressions(String table) {
    Set out = new HashSet();
    for (Iterator each = tables().columns(table).iterator(); each.hasNext(); ) {
      String column = (String) each.next();
      if (column.startsWith(EXPRESSION)) out.add(column);
    }
    return out;
  }

  /** Of each composite in a table's index the identities of its columns: mostly there are none. */
  public List composites(String table) {
    List out = new ArrayList();
    for (Iterator each = tables().columns(table).iterator(); each.hasNext(); ) {
      String column = (String) each.next();
      if (column.startsWith(COMPOSITE)) out.add(Json.list(column.substring(COMPOSITE.length())));
    }
    return out;
  }

  /** The tables that have an index in this session's store. For settings that are new Python is
      asked; if it does not know, there are none until it says that there are. */
  private Indexed tables() {
    String name = settings.name(SkippingConf.current());
    Indexed known = (Indexed) indexed.get(name);
    if (known != null) return known;
    try {
      byte[] message = new MessageWriter().message(MessageWriter.question(Protocol.INDEXED));
      Map header = Answer.header(python.call(name, message, budget()));
      Map tables = (Map) header.get(Protocol.TABLES);
      String reason = (String) header.get(Protocol.REASON);
      known = new Indexed(tables == null ? new HashMap() : tables, reason);
    } catch (Throwable failure) {
      Failures.passOn(failure);
      known = new Indexed(new HashMap(), reason(failure));
    }
    Object told = indexed.putIfAbsent(name, known);
    return told == null ? known : (Indexed) told;
  }

  /** The condition on a column `ip` for a network, as Python writes it; IllegalArgumentException
      with the reason if the text is no network. */
  public String condition(String network) throws Exception {
    Map question = MessageWriter.question(Protocol.NETWORK);
    question.put(Protocol.TEXT, network);
    byte[] message = new MessageWriter().message(question);
    Map header = Answer.header(python.call("", message, new Budget(WRITING)));
    if (Boolean.TRUE.equals(header.get(Protocol.FAILED))) {
      throw new IOException((String) header.get(Protocol.REASON));
    }
    if (!header.containsKey(Protocol.VALUE)) {
      throw new IllegalArgumentException((String) header.get(Protocol.REASON));
    }
    return (String) header.get(Protocol.VALUE);
  }

  /** Threads that do not keep the JVM alive; work beyond their number waits, as long as the query
      does. Those that ask Python are others, so that what runs here may ask and be answered. */
  public ExecutorService threads() {
    return threads;
  }

  /** How long the query which is executed may wait for keys; Spark waits so long for a broadcast.
      */
  public Budget patience() {
    return patience.now(SkippingConf.patience());
  }

  /** Bytes of keys that one dimension may have; no limit if not above zero. */
  public long maxBytes() {
    return (long) numbers.now("dynamic.maxBytes", SettingNumbers.MAX_BYTES);
  }

  /** Why no index would be asked about a scan of a table (null: of none that may have an index),
      with conditions or without; null: it would. */
  public String refusal(String table, boolean hasConditions) {
    if (table == null) {
      return "not a query on a Delta or Iceberg table, or on a Parquet table without buckets and"
          + " ids";
    }
    if (!attached) return "rewrite.disable was called";
    if (!SkippingConf.isEnabled()) return SkippingConf.PREFIX + "enabled is false";
    if (!hasIndex(table)) return tables().absence(table);
    if (!hasConditions) return NO_CONDITION;
    return null;
  }

  /** Asks what an index prunes: `message` has the table, the filters and the keys of joins. */
  public Answer ask(byte[] message) {
    try {
      String name = settings.name(SkippingConf.current());
      Answer answer = new Answer(python.call(name, message, budget()));
      if (answer.failure() != null && SkippingConf.isStrict()) {
        throw new IllegalStateException(answer.failure());
      }
      if (answer.index() != null) answer.number(ordinals(name, answer));
      return answer;
    } catch (Throwable failure) {
      Failures.passOn(failure);
      if (SkippingConf.isStrict()) throw new StrictModeException(failure);
      return Answer.failed(reason(failure));
    }
  }

  /** The files' numbers in an index: those that are here, and of the others as many as come in
      half of the time that is left. The rest comes in the background, for later questions. */
  private FileOrdinals ordinals(final String name, final Answer answer) throws Exception {
    final FileOrdinals held;
    synchronized (ordinals) {
      held = ordinals.of(answer.index(), answer.lineage());
    }
    if (held.size() >= answer.files()) return held;
    Budget budget = budget();
    long rest = budget.left() / 2;
    try {
      while (held.size() < answer.files() && budget.left() > rest) {
        if (!held.add(page(name, answer, held.size(), budget))) break;
      }
    } catch (Exception failure) {
      Failures.passOn(failure);
      if (held.size() == 0) throw failure;
    }
    if (held.size() < answer.files() && held.beginLoading()) {
      try {
        threads.submit(
            new Runnable() {
              public void run() {
                load(name, answer, held);
              }
            });
      } catch (Throwable failure) { // no thread can be had: the next question tries again
        held.endLoading();
        Failures.passOn(failure);
      }
    }
    return held;
  }

  private void load(String name, Answer answer, FileOrdinals held) {
    try {
      Budget budget = new Budget(LOADING);
      while (attached && budget.left() > 0) {
        byte[] page = page(name, answer, held.size(), budget);
        if (held.add(page)) continue;
        FilePage last = new FilePage(page);
        if (last.isWhole() || !answer.lineage().equals(last.lineage())) return;
        Thread.sleep(PAUSE);
      }
    } catch (Throwable failure) {
      Failures.passOn(failure); // the next question goes on where this ended
    } finally {
      held.endLoading();
    }
  }

  private byte[] page(String name, Answer answer, int first, Budget budget) throws Exception {
    Map question = MessageWriter.question(Protocol.FILES);
    question.put(Protocol.INDEX, answer.index());
    question.put(Protocol.TABLE, answer.table());
    question.put(Protocol.LINEAGE, answer.lineage());
    question.put(Protocol.FIRST, Integer.valueOf(first));
    return python.call(name, new MessageWriter().message(question), budget);
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

  /** The tables of a store that have an index. */
  private static final class Indexed {
    private final Map tables;
    private final String reason;

    /** `tables` as Python describes them; `reason` says why it knows of none, or is null. */
    Indexed(Map tables, String reason) {
      this.tables = new HashMap();
      this.reason = reason;
      for (Iterator each = tables.entrySet().iterator(); each.hasNext(); ) {
        Map.Entry table = (Map.Entry) each.next();
        Map index = new HashMap((Map) table.getValue());
        index.put(Protocol.COLUMNS, new HashSet((Collection) index.get(Protocol.COLUMNS)));
        this.tables.put(table.getKey(), index);
      }
    }

    boolean has(String table) {
      return tables.containsKey(table);
    }

    Set columns(String table) {
      Map index = (Map) tables.get(table);
      return index == null ? Collections.EMPTY_SET : (Set) index.get(Protocol.COLUMNS);
    }

    String revision(String table) {
      Map index = (Map) tables.get(table);
      return index == null ? null : (String) index.get(Protocol.REVISION);
    }

    /** Why a table has no index, as far as is known. Spark moves the files of a managed Delta table
        that is renamed: its id stays, and its index is of the root before. */
    String absence(String table) {
      if (reason != null) return reason;
      int end = table.lastIndexOf('\n') + 1; // format, id and root are lines
      boolean hasId = table.indexOf('\n') + 1 < end - 1;
      for (Iterator each = tables.keySet().iterator(); hasId && each.hasNext(); ) {
        String other = (String) each.next();
        if (other.startsWith(table.substring(0, end)) && other.indexOf('\n', end) < 0) {
          return "the table has no index since it was renamed or copied: its index is of "
              + other.substring(end)
              + "; DESCRIBE SKIPPING INDEX EXTENDED says what to do";
        }
      }
      return "the table has no index";
    }
  }

  /** What is kept of indexes: those asked last. */
  private static final class Kept extends LinkedHashMap {
    private static final long serialVersionUID = 1;

    private static final int INDEXES = 64;
    private static final int FILES = 4000000;
    private static final int LINEAGES = 2; // of an index: sessions may know of it by other settings

    Kept() {
      super(16, 0.75f, true);
    }

    /** Those of a lineage, in the place of what was used least of the index's others. */
    FileOrdinals of(String index, String lineage) {
      String key = index + "\n" + lineage;
      FileOrdinals found = (FileOrdinals) get(key);
      if (found == null) {
        found = new FileOrdinals(lineage);
        int others = 0;
        for (Iterator each = keySet().iterator(); each.hasNext(); ) {
          if (((String) each.next()).startsWith(index + "\n")) others++;
        }
        for (Iterator each = keySet().iterator(); others >= LINEAGES && each.hasNext(); ) {
          if (((String) each.next()).startsWith(index + "\n")) {
            each.remove();
            others--;
          }
        }
      }
      put(key, found);
      return found;
    }

    public Object put(Object index, Object added) {
      Object before = super.put(index, added);
      int files = 0;
      for (Iterator each = values().iterator(); each.hasNext(); ) {
        files += ((FileOrdinals) each.next()).size();
      }
      for (Iterator each = entrySet().iterator();
          size() > 1 && (size() > INDEXES || files > FILES); ) {
        files -= ((FileOrdinals) ((Map.Entry) each.next()).getValue()).size();
        each.remove();
      }
      return before;
    }
  }
}
