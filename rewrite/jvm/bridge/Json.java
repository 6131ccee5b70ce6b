package rewrite.jvm.bridge;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** JSON as plain maps and lists. */
public final class Json {
  private static final ObjectMapper MAPPER = new ObjectMapper();
  private static final ObjectReader OBJECTS = MAPPER.readerForMapOf(Object.class);
  private static final ObjectReader TEXTS = MAPPER.readerForListOf(String.class);

  private Json() {}

  /** Reads an object. */
  public static Map<String, Object> read(byte[] json) throws IOException {
    return OBJECTS.readValue(json);
  }

  /** Reads a list of texts that this project wrote. */
  static List<String> readTexts(String json) {
    try {
      return TEXTS.readValue(json);
    } catch (IOException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  /** Reads the header of a message, and leaves `in` behind it. */
  static Map<String, Object> header(ByteBuffer in) throws IOException {
    int length = in.getInt();
    if (length < 0 || length > in.remaining()) {
      throw new IOException("the message has no header of " + length + " bytes");
    }
    byte[] head = new byte[length];
    in.get(head);
    Map<String, Object> header = read(head);
    Protocol.requireVersion(header);
    return header;
  }

  /** Writes a map, list, text or number. */
  public static String write(Object value) {
    try {
      return MAPPER.writeValueAsString(value);
    } catch (IOException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  /** Returns the number under a name. */
  static long number(Map<String, ?> object, String name) {
    return ((Number) object.get(name)).longValue();
  }

  /** Returns the number under a name, which counts files. */
  static int count(Map<String, ?> object, String name) {
    return (int) number(object, name);
  }

  /** Returns the text under a name; null if the object does not have it. */
  public static String text(Map<String, ?> object, String name) {
    return (String) object.get(name);
  }

  /** Returns a map of objects as records. */
  static <T> Map<String, T> records(Map<?, ?> objects, Class<T> type) {
    return MAPPER.convertValue(
        objects, MAPPER.getTypeFactory().constructMapType(HashMap.class, String.class, type));
  }

  /** Returns the list of objects under a name; empty if the object does not have it. */
  @SuppressWarnings("unchecked")
  static List<Map<String, Object>> objects(Map<String, ?> object, String name) {
    Object objects = object.get(name);
    return objects == null ? List.of() : (List<Map<String, Object>>) objects;
  }
}
