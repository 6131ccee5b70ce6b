package rewrite.jvm.bridge;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.Map;

/** Some files of an index, in the bytes of Python's message. Immutable. */
final class FilePage {
  private final ByteBuffer in;
  private final String entriesId;
  private final int first;
  private final boolean isLast;
  private final int rows;
  private final int ordinals;
  private final int sizes;
  private final Texts paths;
  private final Texts marks;

  /** Reads a message: header length, JSON header, ordinals, sizes, then paths and marks, each as
      offsets and text. */
  FilePage(byte[] message) throws IOException {
    in = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN);
    Map<String, Object> header = Json.header(in);
    if (header.get(Protocol.ENTRIES_ID) == null) {
      throw new IOException("the response has no files: " + header);
    }
    entriesId = Json.text(header, Protocol.ENTRIES_ID);
    first = Json.count(header, Protocol.FIRST);
    isLast = Boolean.TRUE.equals(header.get(Protocol.WHOLE));
    rows = Json.count(header, Protocol.N);
    if (rows < 0 || rows > message.length / 24) {
      throw new IOException("the response cannot have " + rows + " files");
    }
    ordinals = in.position();
    sizes = ordinals + 8 * rows;
    paths = Texts.at(in, sizes + 8 * rows, rows);
    marks = Texts.at(in, paths.end(rows - 1), rows);
    if (marks.end(rows - 1) != message.length) throw new IOException("the list of files is cut");
  }

  /** Returns the id of the entries that the page belongs to. */
  String entriesId() {
    return entriesId;
  }

  /** Returns the number of files before this page. */
  int first() {
    return first;
  }

  /** Whether this is the last page. */
  boolean isLast() {
    return isLast;
  }

  int rows() {
    return rows;
  }

  int ordinal(int row) {
    return (int) in.getLong(ordinals + 8 * row);
  }

  private long size(int row) {
    return in.getLong(sizes + 8 * row);
  }

  /** Returns a hash of path and size. */
  int hash(int row) {
    return hash(in.array(), paths.start(row), paths.end(row), size(row));
  }

  static int hash(byte[] path, int from, int end, long size) {
    int hash = Long.hashCode(size);
    for (int i = from; i < end; i++) hash = 31 * hash + path[i];
    hash *= 0x9E3779B9; // paths that count up would be neighbours
    return hash ^ (hash >>> 15);
  }

  /** Whether a row is this file. */
  boolean matches(int row, byte[] path, long size, byte[] mark) {
    return size(row) == size
        && paths.matches(row, path, 0, path.length)
        && marks.matches(row, mark, 0, mark.length);
  }

  /** Whether a row is the same file as a row of another page. */
  boolean isSame(int row, FilePage that, int other) {
    byte[] bytes = that.in.array();
    return size(row) == that.size(other)
        && paths.matches(row, bytes, that.paths.start(other), that.paths.end(other))
        && marks.matches(row, bytes, that.marks.start(other), that.marks.end(other));
  }

  /** A column of texts in Arrow's layout: offsets from a position on, then the bytes. */
  private record Texts(ByteBuffer in, int offsets, int data) {
    static Texts at(ByteBuffer in, int position, int rows) {
      return new Texts(in, position, position + 4 * (rows + 1));
    }

    int start(int row) {
      return data + in.getInt(offsets + 4 * row);
    }

    int end(int row) {
      return start(row + 1);
    }

    boolean matches(int row, byte[] other, int from, int to) {
      return Arrays.equals(in.array(), start(row), end(row), other, from, to);
    }
  }
}
