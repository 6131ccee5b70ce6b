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
import org.apache.spark.sql.catalyst.util.QuotingUtils;
import org.apache.spark.sql.types.AtomicType;
import org.apache.spark.sql.types.BooleanType;
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
  private final List lengths = new ArrayList();

  /** Whether values of a type are numbers or bytes; arrays, structs and the like are not. */
  public static boolean takes(DataType type) {
    return type instanceof AtomicType && !Values.isVariant(type);
  }

  /** Lays out non-null Catalyst values of one type; returns what refers to them. */
  public Map values(DataType type, List values) {
    Map out = new LinkedHashMap();
    out.put(Protocol.TYPE, type.catalogString());
    out.put(Protocol.N, Integer.valueOf(values.size()));
    List places = new ArrayList();
    if (type instanceof FloatType || type instanceof DoubleType) {
      places.add(doubles(values));
    } else if (type instanceof DecimalType) {
      places.add(decimals(values, ((DecimalType) type).scale()));
    } else if (isBytes(values)) {
      bytes(values, places);
    } else {
      places.add(longs(type, values));
    }
    out.put(Protocol.BUFFERS, places);
    return out;
  }

  /** A question, to be filled in. */
  public static Map question(String op) {
    Map out = new LinkedHashMap();
    out.put(Protocol.OP, op);
    return out;
  }

  /** The whole message. */
  public byte[] message(Map question) {
    Map header = new LinkedHashMap(question);
    header.put(Protocol.VERSION, Integer.valueOf(Protocol.CURRENT));
    header.put(Protocol.LENGTHS, lengths);
    byte[] head = Json.write(header).getBytes(StandardCharsets.UTF_8);
    ByteBuffer out = allocate(4 + head.length + buffers.size());
    out.putInt(head.length).put(head).put(buffers.toByteArray());
    return out.array();
  }

  private static boolean isBytes(List values) {
    return !values.isEmpty()
        && (values.get(0) instanceof UTF8String || values.get(0) instanceof byte[]);
  }

  private Integer longs(DataType type, List values) {
    ByteBuffer out = allocate(8 * values.size());
    for (int i = 0; i < values.size(); i++) {
      Object value = values.get(i);
      if (type instanceof BooleanType) {
        out.putLong(((Boolean) value).booleanValue() ? 1 : 0);
      } else {
        out.putLong(((Number) value).longValue());
      }
    }
    return add(out.array());
  }

  private Integer doubles(List values) {
    ByteBuffer out = allocate(8 * values.size());
    for (int i = 0; i < values.size(); i++) {
      out.putDouble(((Number) values.get(i)).doubleValue());
    }
    return add(out.array());
  }

  private Integer decimals(List values, int scale) {
    ByteBuffer out = allocate(16 * values.size());
    for (int i = 0; i < values.size(); i++) {
      BigInteger unscaled =
          ((Decimal) values.get(i)).toJavaBigDecimal().setScale(scale).unscaledValue();
      out.putLong(unscaled.longValue()).putLong(unscaled.shiftRight(64).longValue());
    }
    return add(out.array());
  }

  private void bytes(List values, List places) {
    ByteBuffer offsets = allocate(4 * (values.size() + 1));
    ByteArrayOutputStream data = new ByteArrayOutputStream();
    offsets.putInt(0);
    for (int i = 0; i < values.size(); i++) {
      Object value = values.get(i);
      byte[] one = value instanceof UTF8String ? ((UTF8String) value).getBytes() : (byte[]) value;
      data.write(one, 0, one.length);
      offsets.putInt(data.size());
    }
    places.add(add(offsets.array()));
    places.add(add(data.toByteArray()));
  }

  private Integer add(byte[] buffer) {
    buffers.write(buffer, 0, buffer.length);
    lengths.add(Integer.valueOf(buffer.length));
    return Integer.valueOf(lengths.size() - 1);
  }

  private static ByteBuffer allocate(int size) {
    return ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** A column. */
  public static Map column(String identity, List names, DataType type) {
    Map out = new LinkedHashMap();
    out.put(Protocol.IDENTITY, identity);
    out.put(Protocol.NAME, dotted(names));
    out.put(Protocol.TYPE, type.catalogString());
    return out;
  }

  /** A path of names as skipping/tables spells it: a dot inside a name is no step down. */
  public static String dotted(List names) {
    StringBuilder out = new StringBuilder();
    for (int i = 0; i < names.size(); i++) {
      out.append(i == 0 ? "" : ".").append(escape((String) names.get(i)));
    }
    return out.toString();
  }

  /** One name of a path. */
  public static String escape(String name) {
    return name.indexOf('.') < 0 && name.indexOf('`') < 0
        ? name
        : QuotingUtils.quoteIdentifier(name);
  }
}
