package rewrite.jvm.bridge;

import java.io.ByteArrayOutputStream;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.spark.sql.types.AtomicType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.VariantType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A message to Python: a JSON header, then columns of values laid out as Arrow buffers.
 *
 * <p>Catalyst's values are already what Arrow keeps (days, microseconds, unscaled decimals, UTF-8),
 * so a list of a million keys is one copy and never text.
 */
public final class MessageWriter {
  private final ByteArrayOutputStream buffers = new ByteArrayOutputStream();
  private final StringBuilder lengths = new StringBuilder();
  private int count;

  /** Whether values of a type are numbers or bytes; arrays, structs and the like are not. */
  public static boolean takes(DataType type) {
    return type instanceof AtomicType && !(type instanceof VariantType);
  }

  /** Lays out non-null Catalyst values of one type; returns the JSON that refers to them. */
  public String values(DataType type, List values) {
    String buffers;
    if (type instanceof FloatType || type instanceof DoubleType) {
      buffers = doubles(values);
    } else if (type instanceof DecimalType) {
      buffers = decimals(values, ((DecimalType) type).scale());
    } else if (isBytes(values)) {
      buffers = bytes(values);
    } else {
      buffers = longs(type, values);
    }
    return "{\"type\":" + quote(type.catalogString()) + ",\"n\":" + values.size()
        + ",\"buffers\":[" + buffers + "]}";
  }

  /** The whole message: length of the header (4 bytes, little-endian), header, buffers. */
  public byte[] message(String header) {
    String full = "{\"lengths\":[" + lengths + "]," + header.substring(1);
    byte[] head = full.getBytes(StandardCharsets.UTF_8);
    ByteBuffer out = allocate(4 + head.length + buffers.size());
    out.putInt(head.length).put(head).put(buffers.toByteArray());
    return out.array();
  }

  private static boolean isBytes(List values) {
    return !values.isEmpty()
        && (values.get(0) instanceof UTF8String || values.get(0) instanceof byte[]);
  }

  private String longs(DataType type, List values) {
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

  private String doubles(List values) {
    ByteBuffer out = allocate(8 * values.size());
    for (int i = 0; i < values.size(); i++) {
      out.putDouble(((Number) values.get(i)).doubleValue());
    }
    return add(out.array());
  }

  private String decimals(List values, int scale) {
    ByteBuffer out = allocate(16 * values.size());
    for (int i = 0; i < values.size(); i++) {
      BigInteger unscaled =
          ((Decimal) values.get(i)).toJavaBigDecimal().setScale(scale).unscaledValue();
      out.putLong(unscaled.longValue()).putLong(unscaled.shiftRight(64).longValue());
    }
    return add(out.array());
  }

  private String bytes(List values) {
    ByteBuffer offsets = allocate(4 * (values.size() + 1));
    ByteArrayOutputStream data = new ByteArrayOutputStream();
    offsets.putInt(0);
    for (int i = 0; i < values.size(); i++) {
      Object value = values.get(i);
      byte[] one = value instanceof UTF8String ? ((UTF8String) value).getBytes() : (byte[]) value;
      data.write(one, 0, one.length);
      offsets.putInt(data.size());
    }
    String first = add(offsets.array());
    return first + "," + add(data.toByteArray());
  }

  private String add(byte[] buffer) {
    buffers.write(buffer, 0, buffer.length);
    lengths.append(count == 0 ? "" : ",").append(buffer.length);
    return Integer.toString(count++);
  }

  private static ByteBuffer allocate(int size) {
    return ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** A column as JSON. */
  public static String column(String identity, List names, DataType type) {
    return "{\"identity\":" + quote(identity) + ",\"name\":" + quote(dotted(names))
        + ",\"type\":" + quote(type.catalogString()) + "}";
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
        : "`" + name.replace("`", "``") + "`";
  }

  /** A JSON string. */
  public static String quote(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < 32 || c >= 127) {
        out.append(String.format("\\u%04x", new Object[] {Integer.valueOf(c)}));
      } else {
        out.append(c);
      }
    }
    return out.append('"').toString();
  }
}
