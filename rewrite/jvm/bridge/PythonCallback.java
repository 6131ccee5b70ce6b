package rewrite.jvm.bridge;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.RejectedExecutionHandler;
import java.util.concurrent.Semaphore;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BiFunction;
import org.apache.spark.SparkEnv;
import org.apache.spark.unsafe.Platform;

/**
 * Calls Python with a message, for as long as the asking query has time.
 *
 * <p>Py4J sends bytes as Base64 text, in pieces of 8 KiB that wait for each other on the socket:
 * 40 ms for 1,000 keys, half a second for a million. What is not small goes by a file instead, in a
 * folder that only this user can open, and Python gets its name.
 */
public final class PythonCallback {
  private static final int SMALL = 4096;

  private static final int AT_ONCE = 32;
  private static final int WAITING = 64;
  private static final Semaphore PLACES = new Semaphore(AT_ONCE, true);

  /** Of all sessions of this JVM, for its whole life: Py4J keeps a connection and a thread of
      Python's for every thread that ever called, so threads that end would leave them behind. */
  private static final ExecutorService THREADS =
      new ThreadPoolExecutor(
          0, AT_ONCE, Long.MAX_VALUE, TimeUnit.NANOSECONDS, new SynchronousQueue(),
          new Daemons(), new Handover());

  private volatile BiFunction python;
  private String secret;
  private Path folder;

  /** From now on calls `python`, which takes what `envelope` gives, with a message (byte[]) or the
      name of its file in `folder`, and gives a message. It answers only those who know the
      `secret`. */
  public void connect(BiFunction python, String secret, String folder) {
    this.secret = secret;
    this.folder = Paths.get(folder, new String[0]);
    this.python = python; // last: it is volatile
  }

  /** What Python answers, under these settings; TimeoutException once the budget is spent. */
  public byte[] call(String settings, byte[] message, Budget budget) throws Exception {
    budget.begin();
    try {
      if (PLACES.getQueueLength() >= WAITING) {
        throw new RejectedExecutionException("too many questions wait");
      }
      if (!PLACES.tryAcquire(budget.left(), TimeUnit.NANOSECONDS)) throw new TimeoutException();
      Call call = new Call(settings, message, budget.left());
      try {
        return (byte[]) submit(call).get(budget.left(), TimeUnit.NANOSECONDS);
      } finally {
        call.delete();
      }
    } catch (ExecutionException failure) {
      Throwable cause = failure.getCause();
      if (cause instanceof Exception) throw (Exception) cause;
      throw (Error) cause;
    } finally {
      budget.end();
    }
  }

  /** What Python answers. The message of a failure of Py4J's has all that was sent, and with that
      the secret: only its class is passed on. */
  public static Object apply(BiFunction python, Object one, Object other) {
    try {
      return python.apply(one, other);
    } catch (RuntimeException failure) {
      String name = failure.getClass().getSimpleName();
      throw new IllegalStateException("Python did not answer: " + name);
    }
  }

  private static Future submit(Call call) {
    try {
      return THREADS.submit(call);
    } catch (Throwable noThread) {
      PLACES.release();
      Platform.throwException(noThread);
      return null;
    }
  }

  /** One call under way; it gives its place back when Python is done, however long that takes. */
  private final class Call implements Callable {
    private final String settings;
    private final byte[] message;
    private final long deadline;
    private Path file;
    private boolean over;

    Call(String settings, byte[] message, long left) {
      this.settings = settings;
      this.message = message;
      this.deadline = System.nanoTime() + left;
    }

    public Object call() throws Exception {
      try {
        Object sent = write() ? (Object) file.getFileName().toString() : message;
        long left = deadline - System.nanoTime();
        if (left <= 0) throw new TimeoutException();
        Object answer = apply(python, secret + settings + " " + left / 1000, sent);
        if (answer == null) throw new IOException("Python refused the message");
        return answer;
      } finally {
        delete();
        PLACES.release();
      }
    }

    /** Whether the message is in a file now. */
    private synchronized boolean write() throws IOException {
      if (over) throw new IOException("the question is over");
      if (message.length <= SMALL || isEncrypted()) return false;
      Path made = folder.resolve(UUID.randomUUID() + ".message");
      try {
        Files.createFile(made, new FileAttribute[] {
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"))});
        file = made;
        Files.write(made, message, new OpenOption[] {StandardOpenOption.WRITE});
        return true;
      } catch (IOException noRoom) {
        // The folder is gone, or the disk is full.
        return false;
      }
    }

    /** Deletes the file, once Python has answered or nobody waits any longer. */
    synchronized void delete() {
      over = true;
      if (file == null) return;
      try {
        Files.deleteIfExists(file);
      } catch (IOException failure) {
        // The folder is removed at exit, with all that is in it.
      }
    }
  }

  /** Whether the user wants no data in the clear on local disks. */
  private static boolean isEncrypted() {
    return SparkEnv.get().conf().getBoolean("spark.io.encryption.enabled", false);
  }

  /** A place is given back a moment before its thread is free: who gets it waits for that. */
  private static final class Handover implements RejectedExecutionHandler {
    public void rejectedExecution(Runnable work, ThreadPoolExecutor threads) {
      try {
        threads.getQueue().put(work);
      } catch (InterruptedException cancelled) {
        Platform.throwException(cancelled);
      }
    }
  }

  /** Threads that do not keep the JVM alive, and keep nothing of the query that made them. */
  private static final class Daemons implements ThreadFactory {
    public Thread newThread(Runnable work) {
      Thread thread = new Thread(null, work, "skipping-ask", 0, false);
      thread.setDaemon(true);
      return thread;
    }
  }
}
