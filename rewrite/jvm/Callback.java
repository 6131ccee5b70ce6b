package rewrite.jvm;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.attribute.FileAttribute;
import java.util.function.Function;
import org.apache.spark.SparkEnv;

/**
 * Calls Python with a message.
 *
 * <p>Py4J sends bytes as Base64 text, in pieces of 8 KiB that wait for each other on the socket:
 * 40 ms for 1,000 keys, half a second for a million. What is not small goes by a file instead,
 * which only this user can read, and Python gets its path.
 */
public final class Callback {
  private static final int SMALL = 4096;

  private final Function python;

  /** `python` takes a message (byte[]) or the path of one, and gives a message. */
  public Callback(Function python) {
    this.python = python;
  }

  /** What Python answers. */
  public byte[] call(byte[] message) throws IOException {
    if (message.length <= SMALL || isEncrypted()) return (byte[]) python.apply(message);
    Path file = Files.createTempFile("skipping-", ".message", new FileAttribute[0]);
    try {
      Files.write(file, message, new OpenOption[0]);
      return (byte[]) python.apply(file.toString());
    } finally {
      Files.delete(file);
    }
  }

  /** Whether the user wants no data in the clear on local disks. */
  private static boolean isEncrypted() {
    return SparkEnv.get().conf().getBoolean("spark.io.encryption.enabled", false);
  }
}
