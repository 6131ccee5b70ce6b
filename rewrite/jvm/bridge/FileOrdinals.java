package rewrite.jvm.bridge;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/** The ordinals of an index's files by identity: path, size and mark. Immutable. */
public final class FileOrdinals {
  /** Knows no file. */
  public static final FileOrdinals NONE = new FileOrdinals();

  private final String index;
  private final long generation;
  private final Map ordinals;

  private FileOrdinals() {
    index = "";
    generation = -1;
    ordinals = new HashMap();
  }

  /** Reads a message: header length, JSON header, ordinals, sizes, then paths and marks, each as
      offsets and text. */
  public FileOrdinals(byte[] message) throws IOException {
    ByteBuffer in = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN);
    Map header = Json.header(in);
    index = (String) header.get(Protocol.INDEX);
    generation = Json.number(header, Protocol.GENERATION);
    int n = (int) Json.number(header, Protocol.N);
    int start = in.position();
    int sizes = start + 8 * n;
    int offsets = sizes + 8 * n;
    int paths = offsets + 4 * (n + 1);
    int markOffsets = paths + in.getInt(offsets + 4 * n);
    int marks = markOffsets + 4 * (n + 1);
    ordinals = new HashMap(2 * n);
    for (int i = 0; i < n; i++) {
      String path = text(in, offsets, paths, i);
      String mark = text(in, markOffsets, marks, i);
      ordinals.put(
          key(path, in.getLong(sizes + 8 * i), mark),
          Integer.valueOf((int) in.getLong(start + 8 * i)));
    }
  }

  private static String text(ByteBuffer in, int offsets, int data, int i) {
    int from = in.getInt(offsets + 4 * i);
    int to = in.getInt(offsets + 4 * (i + 1));
    return new String(in.array(), data + from, to - from, StandardCharsets.UTF_8);
  }

  /** How many files there are. */
  public int size() {
    return ordinals.size();
  }

  /** Whether it is of this index and generation. */
  public boolean isOf(String index, long generation) {
    return this.index.equals(index) && this.generation == generation;
  }

  /** The ordinal of a file, or -1. */
  public int ordinal(String path, long size, String mark) {
    Integer ordinal = (Integer) ordinals.get(key(path, size, mark));
    return ordinal == null ? -1 : ordinal.intValue();
  }

  private static String key(String path, long size, String mark) {
    return mark.isEmpty() ? size + " " + path : size + " " + path + "\n" + mark;
  }
}
