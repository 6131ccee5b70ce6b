package rewrite.jvm.bridge;

import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;
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
      Set.of(
          "enabled", "statistics.enabled", "static.joins", "report.size", "dml", "dynamic.enabled",
          "dynamic.rows");

  private final Map<String, Name> names = new RecentMap<>(CAPACITY);
  private final SettingNumbers numbers;
  private long next;

  /** The name of a text, and when it was used last. */
  private record Name(String name, long time) {}

  SessionSettings(SettingNumbers numbers) {
    this.numbers = numbers;
  }

  /** Returns the name of a session's settings. */
  public String name(SQLConf conf) {
    return name(text(conf)); // outside of the lock: it may send a request to Python
  }

  private synchronized String name(String text) {
    Name known = names.get(text);
    String name = known == null ? Long.toString(next++) : known.name;
    names.put(text, new Name(name, System.nanoTime()));
    return name;
  }

  /** Returns the settings of a name as JSON; null if they were not used for long. */
  public synchronized String of(String name) {
    return names.entrySet().stream()
        .filter(each -> each.getValue().name.equals(name))
        .map(Map.Entry::getKey)
        .findFirst()
        .orElse(null);
  }

  /** Returns the names that queries used within ten minutes: only their stores are watched. */
  public synchronized List<String> names() {
    long now = System.nanoTime();
    return names.values().stream()
        .filter(each -> now - each.time < IDLE)
        .map(Name::name)
        .collect(Collectors.toCollection(ArrayList::new)); // Py4J can iterate over it
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
