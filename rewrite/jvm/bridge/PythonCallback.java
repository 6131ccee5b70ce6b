package rewrite.jvm.bridge;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BiFunction;
import org.apache.spark.SparkEnv;
import org.apache.spark.unsafe.Platform;

/**
 * Calls Python with a message, for as long as the query has time.
 *
 * <p>Py4J sends bytes as Base64 text, in pieces of 8 KiB that wait for each other on the socket:
 * 40 ms for 1,000 keys, half a second for a million. So a large message goes into a file, in a
 * folder that only this user can open, and Python gets its name.
 */
public final class PythonCallback {
  private static final int MAX_INLINE = 4096; // bytes

  private static final int CALLS = 32;
  private static final int WAITING = 64;
  private static final Semaphore PERMITS = new Semaphore(CALLS, true);

  /** For all sessions of this JVM, as long as it lives: for every thread that ever called, Py4J
      keeps a connection and a thread in Python. */
  private static final ExecutorService THREADS =
      new ThreadPoolExecutor(
          0, CALLS, Long.MAX_VALUE, TimeUnit.NANOSECONDS, new SynchronousQueue<>(),
          PythonCallback::createThread, PythonCallback::waitForThread);

  private volatile BiFunction<String, Object, byte[]> python;
  private String secret;
  private Path folder;

  /** Sets the function that takes an envelope, which begins with the `secret`, and a message
      (byte[]) or the name of its file in `folder`, and returns a message. */
  public void connect(BiFunction<String, Object, byte[]> python, String secret, String folder) {
    this.secret = secret;
    this.folder = Path.of(folder);
    this.python = python; // last: it is volatile
  }

  /** Sends a request without conditions, and returns the header of the response. */
  Map<String, Object> request(String settings, Request request, Budget budget) throws Exception {
    byte[] response = call(settings, new MessageWriter().message(request), budget);
    return Json.header(ByteBuffer.wrap(response).order(ByteOrder.LITTLE_ENDIAN));
  }

  /** Returns Python's response under some settings; throws TimeoutException once the budget is
      spent. */
  public byte[] call(String settings, byte[] message, Budget budget) throws Exception {
    budget.begin();
    try {
      if (PERMITS.getQueueLength() >= WAITING) {
        throw new RejectedExecutionException("too many questions wait");
      }
      if (!PERMITS.tryAcquire(budget.remaining(), TimeUnit.NANOSECONDS)) {
        throw new TimeoutException();
      }
      Call call = new Call(settings, message, budget.remaining());
      try {
        return submit(call).get(budget.remaining(), TimeUnit.NANOSECONDS);
      } finally {
        call.deleteFile();
      }
    } catch (ExecutionException failure) {
      if (failure.getCause() instanceof Exception cause) throw cause;
      throw (Error) failure.getCause();
    } finally {
      budget.end();
    }
  }

  /** Returns what Python returns. The message of Py4J's exceptions contains all that was sent, and
      so the secret: only the class is passed on. */
  public static <A, B, R> R apply(BiFunction<A, B, R> python, A first, B second) {
    try {
      return python.apply(first, second);
    } catch (RuntimeException failure) {
      String name = failure.getClass().getSimpleName();
      throw new IllegalStateException("Python did not answer: " + name);
    }
  }

  private static Future<byte[]> submit(Call call) {
    try {
      return THREADS.submit(call);
    } catch (Throwable noThread) {
      PERMITS.release();
      Platform.throwException(noThread);
      return null;
    }
  }

  /** One call; it releases its permit when Python returns, however long that takes. */
  private final class Call implements Callable<byte[]> {
    private final String settings;
    private final byte[] message;
    private final long deadline;
    private Path file;
    private boolean isOver;

    Call(String settings, byte[] message, long nanoseconds) {
      this.settings = settings;
      this.message = message;
      this.deadline = System.nanoTime() + nanoseconds;
    }

    @Override public byte[] call() throws Exception {
      try {
        Object content = writeFile() ? file.getFileName().toString() : message;
        long remaining = deadline - System.nanoTime();
        if (remaining <= 0) throw new TimeoutException();
        byte[] response = apply(python, secret + settings + " " + remaining / 1000, content);
        if (response == null) throw new IOException("Python refused the message");
        return response;
      } finally {
        deleteFile();
        PERMITS.release();
      }
    }

    /** Writes a large message into a file. Whether it is in one. */
    private synchronized boolean writeFile() throws IOException {
      if (isOver) throw new IOException("the question is over");
      if (message.length <= MAX_INLINE || isEncrypted()) return false;
      Path created = folder.resolve(UUID.randomUUID() + ".message");
      try {
        Files.createFile(
            created,
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
        file = created;
        Files.write(created, message);
        return true;
      } catch (IOException noSpace) {
        // The folder was removed, or the disk is full.
        return false;
      }
    }

    /** Deletes the file, once Python has returned or the caller has stopped waiting. */
    synchronized void deleteFile() {
      isOver = true;
      if (file == null) return;
      try {
        Files.deleteIfExists(file);
      } catch (IOException failure) {
        // The folder is removed at exit, with its files.
      }
    }
  }

  /** Whether the user does not want unencrypted data on local disks. */
  private static boolean isEncrypted() {
    return SparkEnv.get().conf().getBoolean("spark.io.encryption.enabled", false);
  }

  /** Waits for a thread: a call releases its permit a moment before its thread is free. */
  private static void waitForThread(Runnable work, ThreadPoolExecutor threads) {
    try {
      threads.getQueue().put(work);
    } catch (InterruptedException cancelled) {
      Platform.throwException(cancelled);
    }
  }

  /** Returns a thread that does not keep the JVM alive, and inherits nothing of the query. */
  private static Thread createThread(Runnable work) {
    Thread thread = new Thread(null, work, "skipping-ask", 0, false);
    thread.setDaemon(true);
    return thread;
  }
}
