package rewrite.jvm.bridge;

import java.io.IOException;
import java.util.Map;

/**
 * The JSON keys of messages between Java and Python; `rewrite/bridge/protocol.py` has the same.
 *
 * <p>A message is the length of its header (4 bytes, little-endian), the header as JSON, and
 * buffers.
 */
public final class Protocol {
  /** The version of the message format. A message with another version raises an error. */
  public static final int CURRENT = 3;

  // Keys of objects.
  public static final String OP = "op";
  public static final String VERSION = "version";
  public static final String LENGTHS = "lengths";
  public static final String TABLE = "table";
  public static final String TABLES = "tables";
  public static final String FILTERS = "filters";
  public static final String INDEX = "index";
  public static final String GENERATION = "generation";
  public static final String ENTRIES_ID = "entries_id";
  public static final String FIRST = "first";
  public static final String WHOLE = "whole";
  public static final String NAME = "name";
  public static final String TEXT = "text";
  public static final String VALUE = "value";
  public static final String REASON = "reason";
  public static final String FAILED = "failed";
  public static final String LENGTH = "length";
  public static final String OPERANDS = "operands";
  public static final String OPERAND = "operand";
  public static final String LABEL = "label";
  public static final String OF = "of";
  public static final String UNUSED = "unused";
  public static final String SECONDS = "seconds";
  public static final String N = "n";
  public static final String COLUMN = "column";
  public static final String COLUMNS = "columns";
  public static final String REVISION = "revision";
  public static final String IDENTITY = "identity";
  public static final String TYPE = "type";
  public static final String BUFFERS = "buffers";
  public static final String VALUES = "values";
  public static final String COMPARE = "compare";
  public static final String NULLS = "nulls";
  public static final String WHY = "why";
  public static final String HOLDS = "holds";
  public static final String FAILS = "fails";

  // Requests, and operators of conditions, under OP; COMPARE is both a key and an operator.
  public static final String PRUNED = "pruned";
  public static final String FILES = "files";
  public static final String INDEXED = "indexed";
  public static final String SETTING = "setting";
  public static final String NETWORK = "network";
  public static final String SECTION = "section";
  public static final String AND = "and";
  public static final String OR = "or";
  public static final String NOT = "not";
  public static final String UNKNOWN = "unknown";
  public static final String IN = "in";
  public static final String NULL = "null";
  public static final String PREFIX = "prefix";
  public static final String SUFFIX = "suffix";
  public static final String CONTAINS = "contains";
  public static final String ANY_CASE = "any_case";
  public static final String WEAK = "weak";
  public static final String TUPLES = "tuples";
  public static final String ELEMENTS = "elements";

  private Protocol() {}

  /** Throws ProtocolException if a message has another version. */
  static void requireVersion(Map<String, ?> header) throws IOException {
    boolean isCurrent = header.get(VERSION) instanceof Number version
        && version.longValue() == CURRENT;
    if (!isCurrent) throw new ProtocolException();
  }
}
