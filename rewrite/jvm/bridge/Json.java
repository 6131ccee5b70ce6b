package rewrite.jvm.bridge;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;

/** JSON as plain maps and lists. */
public final class Json {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private Json() {}

  /** An object. */
  public static Map read(byte[] json) throws IOException {
    return MAPPER.readValue(json, Map.class);
  }

  /** A list that we have written. */
  static List list(String json) {
    try {
      return MAPPER.readValue(json, List.class);
    } catch (IOException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  /** The header of a message; leaves `in` behind it. */
  public static Map header(ByteBuffer in) throws IOException {
    int length = in.getInt();
    if (length < 0 || length > in.remaining()) throw new IOException("a header of " + length);
    byte[] head = new byte[length];
    in.get(head);
    return Protocol.checked(read(head));
  }

  /** Any map, list, text or number. */
  public static String write(Object value) {
    try {
      return MAPPER.writeValueAsString(value);
    } catch (IOException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  /** A number under a name. */
  public static long number(Map object, String name) {
    return ((Number) object.get(name)).longValue();
  }
}
