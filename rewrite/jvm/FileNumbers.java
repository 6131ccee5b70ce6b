package rewrite.jvm;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** The ordinals of an index's files by identity: path and size. Immutable. */
public final class FileNumbers {
  /** Knows no file. */
  public static final FileNumbers NONE = new FileNumbers();

  private final String index;
  private final long generation;
  private final Map ordinals;

  private FileNumbers() {
    index = "";
    generation = -1;
    ordinals = new HashMap();
  }

  /** Reads a message: header length, JSON header, ordinals, sizes, path offsets, paths. */
  public FileNumbers(byte[] message) throws IOException {
    ByteBuffer in = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN);
    Map header = Json.header(in);
    index = (String) header.get("index");
    generation = Json.number(header, "generation");
    int n = (int) Json.number(header, "n");
    int start = in.position();
    int sizes = start + 8 * n;
    int offsets = sizes + 8 * n;
    int paths = offsets + 4 * (n + 1);
    ordinals = new HashMap(2 * n);
    for (int i = 0; i < n; i++) {
      int from = in.getInt(offsets + 4 * i);
      int to = in.getInt(offsets + 4 * (i + 1));
      String path = new String(message, paths + from, to - from, StandardCharsets.UTF_8);
      ordinals.put(
          key(path, in.getLong(sizes + 8 * i)), Integer.valueOf((int) in.getLong(start + 8 * i)));
    }
  }

  /** Whether it is of this index and generation. */
  public boolean isOf(String index, long generation) {
    return this.index.equals(index) && this.generation == generation;
  }

  /** The ordinal of a file, or -1. */
  public int ordinal(String path, long size) {
    Integer ordinal = (Integer) ordinals.get(key(path, size));
    return ordinal == null ? -1 : ordinal.intValue();
  }

  private static String key(String path, long size) {
    return size + " " + path;
  }
}
