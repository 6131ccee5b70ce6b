package rewrite.jvm.bridge;

/**
 * The time that one query may spend on lookups.
 *
 * <p>Only time in which at least one lookup waits counts: eight scans at once cost no more than
 * one, and each stage of a long query has its lookups.
 */
public final class Budget {
  private final long total;
  private long spent;
  private long since = System.nanoTime();
  private int waiting;

  public Budget(double seconds) {
    total = (long) Math.min(seconds * 1e9, 1e18);
  }

  /** A lookup begins to wait. */
  public synchronized void begin() {
    if (waiting++ == 0) since = System.nanoTime();
  }

  /** A lookup stops waiting. */
  public synchronized void end() {
    if (--waiting > 0) return;
    long now = System.nanoTime();
    spent += now - since;
    since = now;
  }

  /** Whether there was no lookup for longer than the whole budget. */
  public synchronized boolean isIdle() {
    return waiting == 0 && System.nanoTime() - since > total;
  }

  /** Returns the remaining nanoseconds, not below zero. */
  public synchronized long remaining() {
    long current = waiting == 0 ? 0 : System.nanoTime() - since;
    return Math.max(0, total - spent - current);
  }
}
