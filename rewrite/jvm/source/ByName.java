package rewrite.jvm.source;

import java.lang.reflect.Method;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.unsafe.Platform;
import rewrite.jvm.bridge.Failures;

/** Calls the classes that name those of a table format: they are compiled only in a session that
    has it, so no other class may name them. */
final class ByName {
  private static final Map FOUND = new ConcurrentHashMap();

  private ByName() {}

  /** Calls a static method of a class of this package, the only one of its name. */
  static Object call(String type, String name, Object[] arguments) {
    try {
      return method(type, name).invoke(null, arguments);
    } catch (Exception failure) {
      Platform.throwException(Failures.bare(failure));
      return null;
    }
  }

  private static Method method(String type, String name) throws Exception {
    Method known = (Method) FOUND.get(type + "." + name);
    if (known != null) return known;
    Class found =
        Class.forName("rewrite.jvm.source." + type, true, ByName.class.getClassLoader());
    Method[] methods = found.getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (methods[i].getName().equals(name)) {
        FOUND.put(type + "." + name, methods[i]);
        return methods[i];
      }
    }
    throw new NoSuchMethodException(type + "." + name);
  }
}
