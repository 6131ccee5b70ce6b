package rewrite.jvm.parser;

/** A thread with its own connection to Python; it references nothing of the query that made it. */
final class CallerThread extends Thread {
  CallerThread(Runnable work) {
    super(null, work, "skipping-statement", 0, false);
    setContextClassLoader(ClassLoader.getSystemClassLoader());
    setDaemon(true);
  }
}
