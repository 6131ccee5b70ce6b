package rewrite.jvm.bridge;

import java.io.IOException;
import java.util.Collections;
import java.util.Map;

/** Durations and sizes among the settings, as numbers. Python parses each text once, because a
    second parser in Java would diverge from it. */
final class SettingNumbers {
  /** Default of the seconds that a query may spend on lookups. */
  static final double TIMEOUT = 2.0;

  /** Default of the bytes of keys that one dimension may have. */
  static final double MAX_BYTES = 32L << 20;

  private static final int CACHED = 256;

  /** Nanoseconds without another request after Python did not respond: queries continue. */
  private static final long RETRY_AFTER = 10_000_000_000L;

  private final PythonCallback python;
  private final Map<String, Double> numbers = Collections.synchronizedMap(new RecentMap<>(CACHED));
  private volatile long failedAt = System.nanoTime() - RETRY_AFTER;

  SettingNumbers(PythonCallback python) {
    this.python = python;
  }

  /** Returns seconds or bytes of a setting of this session; the default if it is not set, or
      invalid. */
  double get(String name, double defaultValue) {
    String text = SkippingConf.get(name, "");
    double number = text.isEmpty() ? Double.NaN : read(name, text);
    return Double.isNaN(number) ? defaultValue : number;
  }

  /** Whether a text is valid for a setting. */
  boolean isValid(String name, String text) {
    return !Double.isNaN(read(name, text));
  }

  /** Returns seconds or bytes; NaN if the text is invalid, or Python does not respond. */
  private double read(String name, String text) {
    String key = name + "=" + text;
    Double cached = numbers.get(key);
    if (cached != null) return cached;
    if (System.nanoTime() - failedAt < RETRY_AFTER) return Double.NaN;
    double number;
    try {
      Map<String, Object> header =
          python.request("", new Request.ReadSetting(name, text), new Budget(TIMEOUT));
      if (!header.containsKey(Protocol.VALUE)) throw new IOException("no value");
      Object value = header.get(Protocol.VALUE);
      number = value == null ? Double.NaN : ((Number) value).doubleValue();
    } catch (Throwable failure) {
      Failures.passOn(failure);
      failedAt = System.nanoTime();
      return Double.NaN;
    }
    numbers.put(key, number);
    return number;
  }
}
