package rewrite.jvm.source;

import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.iceberg.ScanTaskGroup;

/**
 * What Iceberg's scan keeps to itself, found by reflection once for each class.
 *
 * <p>Where a release has changed what a copy of the scan takes, `copies` is false: the files are
 * then left out of the task groups that the scan has planned, for which one field is enough.
 */
final class IcebergReflection {
  private static final Map FOUND = new ConcurrentHashMap();

  private final Method table;
  private final Method projection;
  private final Method tasks;
  private final Method caseSensitive;
  private final Method snapshotId;
  private final Method specs;
  private final Method resetTasks;
  private final Method filters;
  private final Field runtimeFilters;
  private final boolean copies;

  private IcebergReflection(Class scan, boolean copies) {
    table = method(scan, "table", new Class[0]);
    Method current = method(scan, "projection", new Class[0]);
    projection = current != null ? current : method(scan, "expectedSchema", new Class[0]);
    tasks = method(scan, "tasks", new Class[0]);
    caseSensitive = method(scan, "caseSensitive", new Class[0]);
    snapshotId = method(scan, "snapshotId", new Class[0]);
    specs = method(scan, "specs", new Class[0]);
    resetTasks = method(scan, "resetTasks", new Class[] {List.class});
    Method given = method(scan, "filters", new Class[0]);
    filters = given != null ? given : method(scan, "filterExpressions", new Class[0]);
    Field late = field(scan, "runtimeFilters");
    runtimeFilters = late != null ? late : field(scan, "runtimeFilterExpressions");
    this.copies =
        copies && specs != null && resetTasks != null && caseSensitive != null
            && runtimeFilters != null && List.class.isAssignableFrom(runtimeFilters.getType());
  }

  /** Those of a scan; null where there are not even those without which nothing is known. */
  static IcebergReflection of(Object scan) {
    IcebergReflection found = (IcebergReflection) FOUND.get(scan.getClass());
    if (found == null) {
      found = new IcebergReflection(scan.getClass(), true);
      FOUND.put(scan.getClass(), found);
    }
    return found.table != null && found.projection != null && found.tasks != null ? found : null;
  }

  /** Whether scans can be copied. */
  boolean copies() {
    return copies;
  }

  /** From now on scans of a class are not copied: a copy has failed, or a test wants to know. */
  static void giveUpCopies(Class scan) {
    FOUND.put(scan, new IcebergReflection(scan, false));
  }

  Object table(Object scan) throws Exception {
    return table.invoke(scan, new Object[0]);
  }

  Object projection(Object scan) throws Exception {
    return projection.invoke(scan, new Object[0]);
  }

  /** The whole files that it reads; they are split later. */
  List tasks(Object scan) throws Exception {
    return (List) tasks.invoke(scan, new Object[0]);
  }

  /** The conditions that it was given; none where that is not known. */
  List filters(Object scan) {
    try {
      Object found = filters == null ? null : filters.invoke(scan, new Object[0]);
      return found instanceof List ? (List) found : new ArrayList();
    } catch (Exception unknown) {
      return new ArrayList();
    }
  }

  boolean caseSensitive(Object scan) throws Exception {
    return ((Boolean) caseSensitive.invoke(scan, new Object[0])).booleanValue();
  }

  /** The snapshot that it reads; null where that is not known. */
  Long snapshotId(Object scan) throws Exception {
    return snapshotId == null ? null : (Long) snapshotId.invoke(scan, new Object[0]);
  }

  /** Gives a copy other tasks. */
  void resetTasks(Object copy, List kept) throws Exception {
    resetTasks.invoke(copy, new Object[] {kept});
  }

  /** A scan of its own with the same files, which may then get others. */
  Object copy(Object scan) throws Exception {
    tasks(scan);
    // What partitioning it reports depends on all files: before some are left out.
    specs.invoke(scan, new Object[0]);
    // By reflection, because javac warns of the class, and this warning cannot be turned off.
    Class type = Class.forName("sun.misc.Unsafe");
    Field unsafe = type.getDeclaredField("theUnsafe");
    unsafe.setAccessible(true);
    Object copy =
        type.getMethod("allocateInstance", Class.class).invoke(unsafe.get(null), scan.getClass());
    for (Class each = scan.getClass(); each != Object.class; each = each.getSuperclass()) {
      Field[] fields = each.getDeclaredFields();
      for (int i = 0; i < fields.length; i++) {
        if (Modifier.isStatic(fields[i].getModifiers())) continue;
        fields[i].setAccessible(true);
        fields[i].set(copy, fields[i].get(scan));
      }
    }
    runtimeFilters.set(copy, new ArrayList((List) runtimeFilters.get(scan)));
    return copy;
  }

  /** The tasks of a partition of a plan. */
  static ScanTaskGroup taskGroup(Object partition) throws Exception {
    return (ScanTaskGroup) field(partition.getClass(), "taskGroup").get(partition);
  }

  /** Gives a partition other tasks. */
  static void setTaskGroup(Object partition, ScanTaskGroup group) throws Exception {
    field(partition.getClass(), "taskGroup").set(partition, group);
  }

  private static Method method(Class within, String name, Class[] parameters) {
    for (Class each = within; each != null; each = each.getSuperclass()) {
      try {
        Method found = each.getDeclaredMethod(name, parameters);
        found.setAccessible(true);
        return found;
      } catch (NoSuchMethodException above) {
        // Perhaps the superclass has it.
      }
    }
    return null;
  }

  private static Field field(Class within, String name) {
    for (Class each = within; each != null; each = each.getSuperclass()) {
      try {
        Field found = each.getDeclaredField(name);
        found.setAccessible(true);
        return found;
      } catch (NoSuchFieldException above) {
        // Perhaps the superclass has it.
      }
    }
    return null;
  }
}
