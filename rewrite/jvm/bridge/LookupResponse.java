package rewrite.jvm.bridge;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.roaringbitmap.RoaringBitmap;

/** The files that an index prunes for one scan, in total and by each operand of the condition. */
public final class LookupResponse {
  private final Map<String, Object> header;
  private final RoaringBitmap pruned;
  private final List<RoaringBitmap> operands = new ArrayList<>();
  private FileOrdinals ordinals = FileOrdinals.NONE;
  private int files; // that had an ordinal when the response came

  /** Reads a message: header length, JSON header, bitmaps. */
  public LookupResponse(byte[] message) throws IOException {
    ByteBuffer in = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN);
    header = Json.header(in);
    if (index() == null) {
      pruned = new RoaringBitmap();
      return;
    }
    pruned = bitmap(in, Json.number(header, Protocol.LENGTH));
    for (Map<String, Object> operand : describeOperands()) {
      if (!(operand.get(Protocol.LABEL) instanceof String)) {
        throw new IOException("an operand in the response has no label");
      }
      operands.add(bitmap(in, Json.number(operand, Protocol.LENGTH)));
    }
    if (table() == null || entriesId() == null) throw new IOException("the response has no table");
  }

  private LookupResponse(Map<String, Object> header) {
    this.header = header;
    this.pruned = new RoaringBitmap();
  }

  /** Returns a response that prunes no file, and the reason. */
  public static LookupResponse none(String reason) {
    return new LookupResponse(Map.of(Protocol.REASON, reason));
  }

  private static RoaringBitmap bitmap(ByteBuffer in, long length) throws IOException {
    RoaringBitmap bitmap = new RoaringBitmap();
    if (length < 0 || length > in.remaining()) {
      throw new IOException("the response has no bitmap of " + length + " bytes");
    }
    if (length > 0) {
      byte[] part = new byte[(int) length];
      in.get(part);
      bitmap.deserialize(ByteBuffer.wrap(part).order(ByteOrder.LITTLE_ENDIAN));
    }
    return bitmap;
  }

  /** Returns the id of the index; null if no index was looked up. */
  public String index() {
    return Json.text(header, Protocol.INDEX);
  }

  /** Returns what failed in Python; null if nothing did. */
  public String failure() {
    return Boolean.TRUE.equals(header.get(Protocol.FAILED))
        ? Json.text(header, Protocol.REASON)
        : null;
  }

  /** Returns the table, as in the request. */
  public String table() {
    return Json.text(header, Protocol.TABLE);
  }

  /** Returns the generation of the index's entries. */
  public long generation() {
    return Json.number(header, Protocol.GENERATION);
  }

  /** Returns how many files of the index Python had loaded. */
  public int files() {
    return Json.count(header, Protocol.N);
  }

  /** Returns the id of the entries that have these files; see FileOrdinals. */
  public String entriesId() {
    return Json.text(header, Protocol.ENTRIES_ID);
  }

  /** Sets the ordinals of the index's files. Only the current ones count, so that the same request
      gives the same result again. */
  void setOrdinals(FileOrdinals ordinals) {
    this.ordinals = ordinals;
    files = ordinals.size();
  }

  /** Returns the ordinal of a file; -1 if the index does not have it. */
  public int ordinal(String path, long size, String mark) {
    return ordinals.ordinal(path, size, mark, files);
  }

  /** Whether no row of a file can match. */
  public boolean prunes(int ordinal) {
    return ordinal >= 0 && pruned.contains(ordinal);
  }

  /** Whether the index prunes a file at all, of this version of the table or another one. */
  public boolean prunesAny() {
    return !pruned.isEmpty();
  }

  public int operands() {
    return operands.size();
  }

  /** Whether operand `i` alone prunes a file. */
  public boolean prunes(int i, int ordinal) {
    return ordinal >= 0 && operands.get(i).contains(ordinal);
  }

  /** Whether operand `i` has the keys of a dimension. */
  public boolean isOf(int i, String dimension) {
    return dimension.equals(describeOperands().get(i).get(Protocol.OF));
  }

  /** Returns the operands, for explain. */
  public List<Map<String, Object>> describeOperands() {
    return Json.objects(header, Protocol.OPERANDS);
  }

  /** Returns everything but the bitmaps, for explain. */
  public Map<String, Object> header() {
    return header;
  }

  /** Two responses are equal if they prune the same files, so that Spark may share the exchanges of
      their scans. Equal ordinals are not enough: after a restore they may identify other files. */
  @Override public boolean equals(Object other) {
    return other instanceof LookupResponse that
        && pruned.equals(that.pruned)
        && ordinals == that.ordinals
        && files == that.files
        && String.valueOf(index()).equals(String.valueOf(that.index()));
  }

  @Override public int hashCode() {
    return pruned.hashCode();
  }
}
