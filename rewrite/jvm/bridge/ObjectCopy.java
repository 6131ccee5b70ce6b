package rewrite.jvm.bridge;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

/** Copies objects of Spark and of table formats whose constructors differ between releases. */
public final class ObjectCopy {
  private ObjectCopy() {}

  /** Returns an object of the same class with the same fields; no constructor is called. */
  @SuppressWarnings("unchecked")
  public static <T> T of(T object) throws ReflectiveOperationException {
    // By reflection, because javac warns of the class, and this warning cannot be turned off.
    Class<?> type = Class.forName("sun.misc.Unsafe");
    Field unsafe = type.getDeclaredField("theUnsafe");
    unsafe.setAccessible(true);
    Object copy =
        type.getMethod("allocateInstance", Class.class).invoke(unsafe.get(null), object.getClass());
    for (Class<?> each = object.getClass(); each != Object.class; each = each.getSuperclass()) {
      for (Field field : each.getDeclaredFields()) {
        if (Modifier.isStatic(field.getModifiers())) continue;
        field.setAccessible(true);
        field.set(copy, field.get(object));
      }
    }
    return (T) copy;
  }

  /** Returns a copy with another value of a field, which the object's own class declares. */
  public static <T> T with(T object, String name, Object value)
      throws ReflectiveOperationException {
    T copy = of(object);
    Field field = object.getClass().getDeclaredField(name);
    field.setAccessible(true);
    field.set(copy, value);
    return copy;
  }

  /** Returns a copy of a node of a plan that has a value in place of one of its arguments. */
  @SuppressWarnings("unchecked") // a copy has the class of the node
  public static <T extends LogicalPlan> T replace(T node, Object argument, Object value) {
    Object[] arguments = new Object[node.productArity()];
    for (int i = 0; i < arguments.length; i++) {
      Object each = node.productElement(i);
      arguments[i] = each == argument ? value : each;
    }
    return (T) node.makeCopy(arguments);
  }
}
