package rewrite.jvm.bridge;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Short names for what sessions have set, so that a message carries no setting: Python asks for
 * those of a name that it does not know, through the gateway, where only this process's Python is.
 *
 * <p>What Java alone obeys makes no name of its own: a hundred time-outs are one.
 */
public final class SessionSettings {
  private static final int KEPT = 64;
  private static final long IDLE = 600L * 1000 * 1000 * 1000; // nanoseconds
  private static final Set SWITCHES = new HashSet(Arrays.asList(
      new Object[] {"enabled", "statistics.enabled", "dml", "dynamic.enabled", "dynamic.rows"}));

  private final Map names = new LinkedHashMap(16, 0.75f, true) {
    protected boolean removeEldestEntry(Map.Entry eldest) {
      if (size() <= KEPT) return false;
      texts.remove(eldest.getValue());
      used.remove(eldest.getValue());
      return true;
    }
  };
  private final Map texts = new HashMap();
  private final Map used = new HashMap();
  private long next;

  private final SettingNumbers numbers;

  SessionSettings(SettingNumbers numbers) {
    this.numbers = numbers;
  }

  /** The name of a session's settings. */
  public String name(SQLConf conf) {
    return name(text(conf)); // not while others wait: Python may be asked
  }

  private synchronized String name(String text) {
    String name = (String) names.get(text);
    if (name == null) {
      name = Long.toString(next++);
      texts.put(name, text);
      names.put(text, name);
    }
    used.put(name, Long.valueOf(System.nanoTime()));
    return name;
  }

  /** The settings of a name as JSON; null if they were not used for long. */
  public synchronized String of(String name) {
    return (String) texts.get(name);
  }

  /** The names that queries asked for within ten minutes: the stores of others need no watching. */
  public synchronized List names() {
    List recent = new ArrayList();
    long now = System.nanoTime();
    for (Iterator each = names.values().iterator(); each.hasNext(); ) {
      Object name = each.next();
      if (now - ((Long) used.get(name)).longValue() < IDLE) recent.add(name);
    }
    return recent;
  }

  private String text(SQLConf conf) {
    Map found = new TreeMap();
    scala.collection.Iterator each = conf.getAllConfs().iterator();
    while (each.hasNext()) {
      scala.Tuple2 pair = (scala.Tuple2) each.next();
      String key = (String) pair._1();
      if (key.startsWith(SkippingConf.PREFIX)
          && !isObeyedHere(key.substring(SkippingConf.PREFIX.length()), (String) pair._2())) {
        found.put(key, pair._2());
      }
    }
    return Json.write(found);
  }

  /** Whether only Java needs a setting; values that are wrong are for Python, which says so. */
  private boolean isObeyedHere(String name, String value) {
    String folded = value.trim().toLowerCase(Locale.ROOT);
    return SWITCHES.contains(name) && (folded.equals("true") || folded.equals("false"))
        || name.equals("mode") && (folded.equals("strict") || folded.equals("fallback"))
        || (name.equals("timeout") || name.equals("dynamic.maxBytes"))
            && numbers.takes(name, value);
  }
}
