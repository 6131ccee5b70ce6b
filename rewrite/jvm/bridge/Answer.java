package rewrite.jvm.bridge;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.roaringbitmap.RoaringBitmap;

/** What an index said about one scan: the ordinals pruned, altogether and leg by leg. */
public final class Answer {
  private final Map header;
  private final RoaringBitmap pruned;
  private final List legs = new ArrayList();
  private FileOrdinals numbers = FileOrdinals.NONE;
  private int known;

  /** Reads a message: header length, JSON header, bitmaps. */
  public Answer(byte[] message) throws IOException {
    ByteBuffer in = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN);
    header = Json.header(in);
    if (index() == null) {
      pruned = new RoaringBitmap();
      return;
    }
    pruned = bitmap(in, Json.number(header, Protocol.LENGTH));
    List described = described();
    for (int i = 0; i < described.size(); i++) {
      Map leg = (Map) described.get(i);
      if (!(leg.get(Protocol.LABEL) instanceof String)) throw new IOException("a leg of no name");
      legs.add(bitmap(in, Json.number(leg, Protocol.LENGTH)));
    }
    if (table() == null || lineage() == null) throw new IOException("an answer of no table");
  }

  private Answer(Map header) {
    this.header = header;
    this.pruned = new RoaringBitmap();
  }

  /** The answer when there is none: nothing is pruned. */
  public static Answer failed(String reason) {
    return new Answer(Collections.singletonMap(Protocol.REASON, reason));
  }

  /** The header of a message. */
  static Map header(byte[] message) throws IOException {
    return Json.header(ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN));
  }

  private static RoaringBitmap bitmap(ByteBuffer in, long length) throws IOException {
    RoaringBitmap bitmap = new RoaringBitmap();
    if (length < 0 || length > in.remaining()) throw new IOException("a bitmap of " + length);
    if (length > 0) {
      byte[] part = new byte[(int) length];
      in.get(part);
      bitmap.deserialize(ByteBuffer.wrap(part).order(ByteOrder.LITTLE_ENDIAN));
    }
    return bitmap;
  }

  /** The index that answered; null if none did. */
  public String index() {
    return (String) header.get(Protocol.INDEX);
  }

  /** What went wrong when Python asked; null if nothing did. */
  public String failure() {
    return Boolean.TRUE.equals(header.get(Protocol.FAILED))
        ? (String) header.get(Protocol.REASON)
        : null;
  }

  /** The table, as in the question. */
  public String table() {
    return (String) header.get(Protocol.TABLE);
  }

  /** Generation of the index's entries. */
  public long generation() {
    return Json.number(header, Protocol.GENERATION);
  }

  /** How many files of the index Python knew. */
  public int files() {
    return (int) Json.number(header, Protocol.N);
  }

  /** Which files those are, and in which order (`FileOrdinals`). */
  public String lineage() {
    return (String) header.get(Protocol.LINEAGE);
  }

  /** Sets how files are numbered in this index: those that are there now, so that what is asked
      again gets the same answer. */
  public void number(FileOrdinals numbers) {
    this.numbers = numbers;
    known = numbers.size();
  }

  /** The file's ordinal; -1: the index does not know it. */
  public int ordinal(String path, long size, String mark) {
    return numbers.ordinal(path, size, mark, known);
  }

  /** Whether a file is proven to hold no matching row. */
  public boolean prunes(int ordinal) {
    return ordinal >= 0 && pruned.contains(ordinal);
  }

  /** How many legs answered. */
  public int legs() {
    return legs.size();
  }

  /** Whether leg `i` alone prunes a file. */
  public boolean prunes(int i, int ordinal) {
    return ordinal >= 0 && ((RoaringBitmap) legs.get(i)).contains(ordinal);
  }

  /** Whether leg `i` is that of a dimension's keys. */
  public boolean isOf(int i, String dimension) {
    return dimension.equals(((Map) described().get(i)).get(Protocol.OF));
  }

  /** The legs, for explain. */
  public List described() {
    Object described = header.get(Protocol.LEGS);
    return described == null ? Collections.EMPTY_LIST : (List) described;
  }

  /** Everything but the bitmaps, for explain. */
  public Map header() {
    return header;
  }

  /** Two answers are equal where they prune equally: exchanges of such scans may be shared. So the
      ordinals are of the same files, too: after a restore they may be of others. */
  public boolean equals(Object other) {
    return other instanceof Answer
        && pruned.equals(((Answer) other).pruned)
        && numbers == ((Answer) other).numbers
        && known == ((Answer) other).known
        && String.valueOf(index()).equals(String.valueOf(((Answer) other).index()));
  }

  public int hashCode() {
    return pruned.hashCode();
  }
}
