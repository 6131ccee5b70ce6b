package rewrite.jvm.bridge;

/**
 * The time that one query may spend on asking: what passes while at least one of its questions
 * waits, so that eight scans cost no more than one, and the stages of a long query are all asked.
 */
public final class Budget {
  private final long total;
  private long spent;
  private long since = System.nanoTime();
  private int waiting;

  /** `seconds` that may be spent. */
  public Budget(double seconds) {
    total = (long) Math.min(seconds * 1e9, 1e18);
  }

  /** A question begins to wait. */
  public synchronized void begin() {
    if (waiting++ == 0) since = System.nanoTime();
  }

  /** It waits no longer. */
  public synchronized void end() {
    if (--waiting > 0) return;
    long now = System.nanoTime();
    spent += now - since;
    since = now;
  }

  /** Whether nothing was asked for as long as may be spent altogether. */
  public synchronized boolean isIdle() {
    return waiting == 0 && System.nanoTime() - since > total;
  }

  /** Nanoseconds that are left, not below zero. */
  public synchronized long left() {
    long now = waiting == 0 ? 0 : System.nanoTime() - since;
    return Math.max(0, total - spent - now);
  }
}
