package rewrite.faults;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.unsafe.Platform;

/** What makes one method fail, at a chosen call of it. */
public final class Faults {
  private static final Map CALLS = new HashMap();
  private static String armed;
  private static int call;
  private static String failure;
  private static int thrown;

  /** A method begins. */
  public static void at(String entry) {
    synchronized (CALLS) {
      Integer before = (Integer) CALLS.get(entry);
      int calls = before == null ? 1 : before.intValue() + 1;
      CALLS.put(entry, Integer.valueOf(calls));
      if (!entry.equals(armed) || call != 0 && call != calls) return;
      thrown++;
    }
    String text = "a fault in " + entry;
    if (failure.equals("link")) throw new NoSuchMethodError(text);
    if (failure.equals("stack")) throw new StackOverflowError(text);
    if (failure.equals("memory")) throw new OutOfMemoryError(text);
    if (failure.equals("interrupt")) Platform.throwException(new InterruptedException(text));
    throw new IllegalStateException(text);
  }

  /** From now on a method fails, at one call or (0) at each; all are counted anew. */
  public void arm(String entry, int call, String failure) {
    synchronized (CALLS) {
      CALLS.clear();
      Faults.armed = entry;
      Faults.call = call;
      Faults.failure = failure;
      Faults.thrown = 0;
    }
  }

  /** How often it has failed; none fails from now on. */
  public int disarm() {
    synchronized (CALLS) {
      armed = null;
      return thrown;
    }
  }

  /** How often each method was called. */
  public Map calls() {
    synchronized (CALLS) {
      return new HashMap(CALLS);
    }
  }
}
