package rewrite.jvm.bridge;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Short names for the settings of sessions, so that a message carries no setting: Python asks for
 * the settings of a new name through the gateway, which only the Python of this process can use.
 *
 * <p>Settings that only Java uses make no new name: a hundred timeouts share one.
 */
public final class SessionSettings {
  private static final int CAPACITY = 64;
  private static final long IDLE = 600L * 1000 * 1000 * 1000; // nanoseconds
  private static final Set<String> SWITCHES =
      Set.of("enabled", "statistics.enabled", "dml", "dynamic.enabled", "dynamic.rows");

  private final Map<String, String> names = new RecentMap<>(CAPACITY) {
    private static final long serialVersionUID = 1;

    @Override protected boolean removeEldestEntry(Map.Entry<String, String> eldest) {
      if (!super.removeEldestEntry(eldest)) return false;
      texts.remove(eldest.getValue());
      used.remove(eldest.getValue());
      return true;
    }
  };
  private final Map<String, String> texts = new HashMap<>();
  private final Map<String, Long> used = new HashMap<>();
  private final SettingNumbers numbers;
  private long next;

  SessionSettings(SettingNumbers numbers) {
    this.numbers = numbers;
  }

  /** Returns the name of a session's settings. */
  public String name(SQLConf conf) {
    return name(text(conf)); // outside of the lock: it may send a request to Python
  }

  private synchronized String name(String text) {
    String name = names.get(text);
    if (name == null) {
      name = Long.toString(next++);
      texts.put(name, text);
      names.put(text, name);
    }
    used.put(name, System.nanoTime());
    return name;
  }

  /** Returns the settings of a name as JSON; null if they were not used for long. */
  public synchronized String of(String name) {
    return texts.get(name);
  }

  /** Returns the names that queries used within ten minutes: only their stores are watched. */
  public synchronized List<String> names() {
    long now = System.nanoTime();
    List<String> recent = new ArrayList<>(names.values()); // Py4J can iterate over it
    recent.removeIf(name -> now - used.get(name) >= IDLE);
    return recent;
  }

  private String text(SQLConf conf) {
    Map<String, String> ours = new TreeMap<>();
    conf.getAllConfs().foreach(pair -> {
      boolean isOurs = pair._1().startsWith(SkippingConf.PREFIX);
      if (isOurs && !isOnlyForJava(pair._1().substring(SkippingConf.PREFIX.length()), pair._2())) {
        ours.put(pair._1(), pair._2());
      }
      return null;
    });
    return Json.write(ours);
  }

  /** Whether only Java needs a setting. Python reports an invalid value. */
  private boolean isOnlyForJava(String name, String value) {
    String folded = value.trim().toLowerCase(Locale.ROOT);
    return switch (name) {
      case "mode" -> folded.equals("strict") || folded.equals("fallback");
      case "timeout", "dynamic.maxBytes" -> numbers.isValid(name, value);
      default -> SWITCHES.contains(name) && (folded.equals("true") || folded.equals("false"));
    };
  }
}
