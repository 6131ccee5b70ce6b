package rewrite.jvm.source;

import java.lang.reflect.AccessibleObject;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.iceberg.BatchScan;
import org.apache.iceberg.ScanTask;
import org.apache.iceberg.ScanTaskGroup;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.expressions.Expression;
import rewrite.jvm.bridge.ObjectCopy;

/**
 * The members of Iceberg's scan that are not public, found by reflection once for each class.
 *
 * <p>Where a release has changed what a copy of the scan takes, `copies` is false: the files are
 * then removed from the task groups that the scan has planned, for which one field is enough.
 */
final class IcebergReflection {
  private static final Map<Class<?>, IcebergReflection> FOUND = new ConcurrentHashMap<>();

  private final Method table;
  private final Method projection;
  private final Method tasks;
  private final Method caseSensitive;
  private final Method snapshotId;
  private final Field planned;
  private final Method specs;
  private final Method resetTasks;
  private final Method filters;
  private final Field runtimeFilters;
  private final boolean copies;

  private IcebergReflection(Class<?> scan, boolean copies) {
    table = method(scan, "table");
    Method current = method(scan, "projection");
    projection = current != null ? current : method(scan, "expectedSchema");
    tasks = method(scan, "tasks");
    caseSensitive = method(scan, "caseSensitive");
    snapshotId = method(scan, "snapshotId");
    planned = field(scan, "scan");
    specs = method(scan, "specs");
    resetTasks = method(scan, "resetTasks", List.class);
    Method given = method(scan, "filters");
    filters = given != null ? given : method(scan, "filterExpressions");
    Field late = field(scan, "runtimeFilters");
    runtimeFilters = late != null ? late : field(scan, "runtimeFilterExpressions");
    this.copies =
        copies && specs != null && resetTasks != null && caseSensitive != null
            && runtimeFilters != null && List.class.isAssignableFrom(runtimeFilters.getType());
  }

  /** Returns those of a scan; null if one is missing without which nothing is known. */
  static IcebergReflection of(Object scan) {
    IcebergReflection found =
        FOUND.computeIfAbsent(scan.getClass(), type -> new IcebergReflection(type, true));
    return found.table != null && found.projection != null && found.tasks != null ? found : null;
  }

  boolean copies() {
    return copies;
  }

  /** Stops copying scans of a class: a copy has failed, or a test asks for it. */
  static void giveUpCopies(Class<?> scan) {
    FOUND.put(scan, new IcebergReflection(scan, false));
  }

  /** Returns what a method of a scan does, whose type it has in all releases. */
  @SuppressWarnings("unchecked")
  private static <T> T call(Method method, Object scan) throws ReflectiveOperationException {
    return (T) method.invoke(scan);
  }

  Object table(Object scan) throws ReflectiveOperationException {
    return table.invoke(scan);
  }

  Schema projection(Object scan) throws ReflectiveOperationException {
    return call(projection, scan);
  }

  /** Returns the files that it reads; they are split later. */
  List<ScanTask> tasks(Object scan) throws ReflectiveOperationException {
    return call(tasks, scan);
  }

  /** Returns the conditions that it was given; empty where that is not known. */
  List<Expression> filters(Object scan) {
    try {
      List<Expression> found = filters == null ? null : call(filters, scan);
      return found == null ? List.of() : found;
    } catch (Exception unknown) {
      return List.of();
    }
  }

  boolean caseSensitive(Object scan) throws ReflectiveOperationException {
    return call(caseSensitive, scan);
  }

  /** Returns the snapshot that it reads; null where that is not known. */
  Long snapshotId(Object scan) throws ReflectiveOperationException {
    Long given = snapshotId == null ? null : call(snapshotId, scan);
    if (given != null || planned == null) return given;
    // Until Spark 4.0 a scan knows only the snapshot that a query names.
    Snapshot current = planned.get(scan) instanceof BatchScan batch ? batch.snapshot() : null;
    return current == null ? null : Long.valueOf(current.snapshotId());
  }

  void resetTasks(Object copy, List<ScanTask> remaining) throws ReflectiveOperationException {
    resetTasks.invoke(copy, remaining);
  }

  /** Returns another scan with the same files, which may then get others. */
  Object copy(Object scan) throws ReflectiveOperationException {
    tasks(scan);
    // The partitioning that it reports depends on all files: before some are removed.
    specs.invoke(scan);
    Object copy = ObjectCopy.of(scan);
    runtimeFilters.set(copy, new ArrayList<>((List<?>) runtimeFilters.get(scan)));
    return copy;
  }

  @SuppressWarnings("unchecked")
  static ScanTaskGroup<ScanTask> taskGroup(Object partition) throws ReflectiveOperationException {
    return (ScanTaskGroup<ScanTask>) field(partition.getClass(), "taskGroup").get(partition);
  }

  static void setTaskGroup(Object partition, ScanTaskGroup<ScanTask> group)
      throws ReflectiveOperationException {
    field(partition.getClass(), "taskGroup").set(partition, group);
  }

  /** Returns a method of a class, or of one above it; null if none of them has it. */
  private static Method method(Class<?> within, String name, Class<?>... parameters) {
    return find(within, type -> type.getDeclaredMethod(name, parameters));
  }

  private static Field field(Class<?> within, String name) {
    return find(within, type -> type.getDeclaredField(name));
  }

  private interface Lookup<T> {
    T in(Class<?> type) throws ReflectiveOperationException;
  }

  private static <T extends AccessibleObject> T find(Class<?> within, Lookup<T> lookup) {
    for (Class<?> each = within; each != null; each = each.getSuperclass()) {
      try {
        T found = lookup.in(each);
        found.setAccessible(true);
        return found;
      } catch (ReflectiveOperationException missing) {
        // Perhaps the superclass has it.
      }
    }
    return null;
  }
}
