package rewrite.jvm.bridge;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Map;

/** Some files of an index, as Python's message has them. Immutable. */
final class FilePage {
  private final ByteBuffer in;
  private final String lineage;
  private final int first;
  private final boolean whole;
  private final int rows;
  private final int ordinals;
  private final int sizes;
  private final int pathEnds;
  private final int paths;
  private final int markEnds;
  private final int marks;

  /** Reads a message: header length, JSON header, ordinals, sizes, then paths and marks, each as
      offsets and text. */
  FilePage(byte[] message) throws IOException {
    in = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN);
    Map header = Json.header(in);
    if (header.get(Protocol.LINEAGE) == null) throw new IOException("no files: " + header);
    lineage = (String) header.get(Protocol.LINEAGE);
    first = (int) Json.number(header, Protocol.FIRST);
    whole = Boolean.TRUE.equals(header.get(Protocol.WHOLE));
    rows = (int) Json.number(header, Protocol.N);
    if (rows < 0 || rows > message.length / 24) throw new IOException(rows + " files");
    ordinals = in.position();
    sizes = ordinals + 8 * rows;
    pathEnds = sizes + 8 * rows;
    paths = pathEnds + 4 * (rows + 1);
    markEnds = paths + in.getInt(pathEnds + 4 * rows);
    marks = markEnds + 4 * (rows + 1);
    if (marks + in.getInt(markEnds + 4 * rows) != message.length) {
      throw new IOException("files that are cut off");
    }
  }

  /** Which files it goes on from. */
  String lineage() {
    return lineage;
  }

  /** How many of those there are before its own. */
  int first() {
    return first;
  }

  /** Whether no more are to come. */
  boolean isWhole() {
    return whole;
  }

  /** How many it has. */
  int rows() {
    return rows;
  }

  /** The ordinal of one. */
  int ordinal(int row) {
    return (int) in.getLong(ordinals + 8 * row);
  }

  private long size(int row) {
    return in.getLong(sizes + 8 * row);
  }

  /** A number that equal files have in common. */
  int hash(int row) {
    int from = paths + in.getInt(pathEnds + 4 * row);
    return hash(in.array(), from, paths + in.getInt(pathEnds + 4 * (row + 1)), size(row));
  }

  static int hash(byte[] path, int from, int end, long size) {
    int hash = Long.hashCode(size);
    for (int i = from; i < end; i++) hash = 31 * hash + path[i];
    hash *= 0x9E3779B9; // names that count up would be side by side
    return hash ^ (hash >>> 15);
  }

  /** Whether a file is that one. */
  boolean is(int row, byte[] path, long size, byte[] mark) {
    return size(row) == size
        && equal(paths, pathEnds, row, path, 0, path.length)
        && equal(marks, markEnds, row, mark, 0, mark.length);
  }

  /** Whether a file is one of another page. */
  boolean isSame(int row, FilePage page, int other) {
    byte[] there = page.in.array();
    int path = page.paths + page.in.getInt(page.pathEnds + 4 * other);
    int mark = page.marks + page.in.getInt(page.markEnds + 4 * other);
    return size(row) == page.size(other)
        && equal(paths, pathEnds, row, there, path,
            page.paths + page.in.getInt(page.pathEnds + 4 * (other + 1)))
        && equal(marks, markEnds, row, there, mark,
            page.marks + page.in.getInt(page.markEnds + 4 * (other + 1)));
  }

  private boolean equal(int data, int ends, int row, byte[] other, int from, int end) {
    int start = data + in.getInt(ends + 4 * row);
    return Arrays.equals(
        in.array(), start, data + in.getInt(ends + 4 * (row + 1)), other, from, end);
  }
}
