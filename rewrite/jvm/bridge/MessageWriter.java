package rewrite.jvm.bridge;

import java.io.ByteArrayOutputStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.util.QuotingUtils;
import org.apache.spark.sql.types.AtomicType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.shims.Values;

/**
 * A message to Python: a JSON header, then columns of values laid out as Arrow buffers.
 *
 * <p>Catalyst's values are already what Arrow keeps (days, microseconds, unscaled decimals, UTF-8),
 * so a list of a million keys is one copy and never text.
 */
public final class MessageWriter {
  private final ByteArrayOutputStream buffers = new ByteArrayOutputStream();
  private final List<Integer> lengths = new ArrayList<>();

  /** Whether values of a type are numbers or bytes, unlike arrays, structs and the like. */
  public static boolean takes(DataType type) {
    return type instanceof AtomicType && !Values.isVariant(type);
  }

  /** Lay out non-null Catalyst values of one type; return the object that refers to them. */
  public Map<String, Object> values(DataType type, List<?> values) {
    Map<String, Object> out = new LinkedHashMap<>();
    out.put(Protocol.TYPE, type.catalogString());
    out.put(Protocol.N, values.size());
    out.put(Protocol.BUFFERS, buffers(type, values));
    return out;
  }

  private List<Integer> buffers(DataType type, List<?> values) {
    if (type instanceof FloatType || type instanceof DoubleType) return List.of(doubles(values));
    if (type instanceof DecimalType decimal) return List.of(decimals(values, decimal.scale()));
    return isBytes(values) ? bytes(values) : List.of(longs(values));
  }

  /** Return the complete message. */
  public byte[] message(Request request) {
    Map<String, Object> header = header(request);
    header.put(Protocol.VERSION, Protocol.CURRENT);
    header.put(Protocol.LENGTHS, lengths);
    byte[] head = Json.write(header).getBytes(StandardCharsets.UTF_8);
    ByteBuffer out = allocate(4 + head.length + buffers.size());
    out.putInt(head.length).put(head).put(buffers.toByteArray());
    return out.array();
  }

  private static Map<String, Object> header(Request request) {
    if (request instanceof Request.ReadSetting setting) {
      return node(Protocol.SETTING, Protocol.NAME, setting.name(), Protocol.TEXT, setting.text());
    }
    if (request instanceof Request.WriteCondition condition) {
      return node(Protocol.NETWORK, Protocol.TEXT, condition.network());
    }
    if (request instanceof Request.WriteSection section) {
      return node(Protocol.SECTION, Protocol.NAME, section.name());
    }
    if (request instanceof Request.ListFiles files) {
      return node(
          Protocol.FILES, Protocol.INDEX, files.index(), Protocol.TABLE, files.table(),
          Protocol.ENTRIES_ID, files.entriesId(), Protocol.FIRST, files.first());
    }
    if (request instanceof Request.FindPrunable lookup) {
      return node(
          Protocol.PRUNED, Protocol.TABLE, lookup.table(), Protocol.FILTERS, lookup.condition());
    }
    return node(Protocol.INDEXED);
  }

  /** Build an object from names and values in turn; leave out names without a value. */
  public static Map<String, Object> node(String op, Object... entries) {
    Map<String, Object> out = new LinkedHashMap<>();
    out.put(Protocol.OP, op);
    for (int i = 0; i < entries.length; i += 2) {
      if (entries[i + 1] != null) out.put((String) entries[i], entries[i + 1]);
    }
    return out;
  }

  private static boolean isBytes(List<?> values) {
    return !values.isEmpty()
        && (values.get(0) instanceof UTF8String || values.get(0) instanceof byte[]);
  }

  private int longs(List<?> values) {
    ByteBuffer out = allocate(8 * values.size());
    for (Object value : values) {
      out.putLong(value instanceof Boolean flag ? flag ? 1 : 0 : ((Number) value).longValue());
    }
    return add(out.array());
  }

  private int doubles(List<?> values) {
    ByteBuffer out = allocate(8 * values.size());
    for (Object value : values) {
      out.putDouble(((Number) value).doubleValue());
    }
    return add(out.array());
  }

  private int decimals(List<?> values, int scale) {
    ByteBuffer out = allocate(16 * values.size());
    for (Object value : values) {
      BigInteger unscaled = ((Decimal) value).toJavaBigDecimal().setScale(scale).unscaledValue();
      out.putLong(unscaled.longValue()).putLong(unscaled.shiftRight(64).longValue());
    }
    return add(out.array());
  }

  private List<Integer> bytes(List<?> values) {
    ByteBuffer offsets = allocate(4 * (values.size() + 1));
    ByteArrayOutputStream data = new ByteArrayOutputStream();
    offsets.putInt(0);
    for (Object value : values) {
      data.writeBytes(value instanceof UTF8String text ? text.getBytes() : (byte[]) value);
      offsets.putInt(data.size());
    }
    return List.of(add(offsets.array()), add(data.toByteArray()));
  }

  /** Append a buffer and return its number. */
  private int add(byte[] buffer) {
    buffers.writeBytes(buffer);
    lengths.add(buffer.length);
    return lengths.size() - 1;
  }

  private static ByteBuffer allocate(int size) {
    return ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Join a path of names as skipping/tables does: a name with a dot is quoted. */
  public static String joinPath(List<String> names) {
    return names.stream().map(MessageWriter::escape).collect(Collectors.joining("."));
  }

  /** Quote one name of a path if it needs that. */
  public static String escape(String name) {
    return name.indexOf('.') < 0 && name.indexOf('`') < 0
        ? name
        : QuotingUtils.quoteIdentifier(name);
  }
}
