package rewrite.jvm.bridge;

import java.util.LinkedHashMap;
import java.util.Map;

/** Durations and sizes among the settings, as numbers. Python reads their texts, once each: with a
    second reader here the two would drift apart. */
final class SettingNumbers {
  /** Seconds that a query may spend on asking, where nothing else is set. */
  static final double TIMEOUT = 2.0;

  /** Bytes of keys that one dimension may have, where nothing else is set. */
  static final double MAX_BYTES = 32L << 20;

  private static final int KEPT = 256;

  /** Nanoseconds for which a Python that did not answer is not asked again: queries go on. */
  private static final long SILENCE = 10000000000L;

  private static final Double WRONG = Double.valueOf(Double.NaN);

  private final PythonCallback python;
  private final Map known = new LinkedHashMap(16, 0.75f, true) {
    protected boolean removeEldestEntry(Map.Entry eldest) {
      return size() > KEPT;
    }
  };

  private volatile long failed = System.nanoTime() - SILENCE;

  SettingNumbers(PythonCallback python) {
    this.python = python;
  }

  /** Seconds or bytes of a setting of this session; `otherwise` where it is not set, or wrong. */
  double now(String name, double otherwise) {
    String text = SkippingConf.get(name, "");
    double number = text.isEmpty() ? Double.NaN : read(name, text);
    return Double.isNaN(number) ? otherwise : number;
  }

  /** Whether a text is right for a setting. */
  boolean takes(String name, String text) {
    return !Double.isNaN(read(name, text));
  }

  /** Seconds or bytes; NaN: the text is wrong, or Python does not answer. */
  private double read(String name, String text) {
    String key = name + "=" + text;
    Double number;
    synchronized (known) {
      number = (Double) known.get(key);
    }
    if (number != null) return number.doubleValue();
    if (System.nanoTime() - failed < SILENCE) return Double.NaN;
    try {
      Map question = MessageWriter.question(Protocol.SETTING);
      question.put(Protocol.NAME, name);
      question.put(Protocol.TEXT, text);
      byte[] message = new MessageWriter().message(question);
      Map header = Answer.header(python.call("", message, new Budget(TIMEOUT)));
      if (!header.containsKey(Protocol.VALUE)) throw new java.io.IOException("no value");
      Object value = header.get(Protocol.VALUE);
      number = value == null ? WRONG : Double.valueOf(((Number) value).doubleValue());
    } catch (Throwable failure) {
      Failures.passOn(failure);
      failed = System.nanoTime();
      return Double.NaN;
    }
    synchronized (known) {
      known.put(key, number);
    }
    return number.doubleValue();
  }
}
