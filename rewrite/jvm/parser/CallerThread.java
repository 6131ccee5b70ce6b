package rewrite.jvm.parser;

/** A thread with a connection to Python of its own, which keeps nothing of the query that made it. */
final class CallerThread extends Thread {
  CallerThread(Runnable work) {
    super(null, work, "skipping-statement", 0, false);
    setContextClassLoader(ClassLoader.getSystemClassLoader());
    setDaemon(true);
  }
}
