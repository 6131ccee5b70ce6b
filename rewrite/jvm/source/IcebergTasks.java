package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.BaseScanTaskGroup;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.ScanTask;
import org.apache.iceberg.ScanTaskGroup;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.expressions.Binder;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.ResidualEvaluator;
import org.apache.iceberg.spark.SparkV2Filters;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.TypeUtil;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy$;
import rewrite.jvm.bridge.ObjectCopy;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.RuntimeRowFilter;

/** The tasks of an Iceberg scan, without pruned files and with a condition on row groups. */
final class IcebergTasks {
  private IcebergTasks() {}

  static DataFile file(ScanTask task) {
    return task.asFileScanTask().file();
  }

  /** Adds the files in a partition of a plan: the bytes by location. */
  static void addFiles(Object partition, Map<String, Long> files) throws Exception {
    for (ScanTask task : IcebergReflection.taskGroup(partition).tasks()) {
      files.put(file(task).location(), file(task).fileSizeInBytes());
    }
  }

  /** Returns one task for each file in some partitions, which may have parts of files. */
  static List<ScanTask> of(List<InputPartition> partitions) throws ReflectiveOperationException {
    Map<String, ScanTask> out = new LinkedHashMap<>();
    for (InputPartition each : partitions) {
      for (ScanTask task : IcebergReflection.taskGroup(each).tasks()) {
        out.putIfAbsent(file(task).location(), task);
      }
    }
    return List.copyOf(out.values());
  }

  /** Returns partitions with the same tasks, which may get others. */
  static InputPartition[] copy(List<InputPartition> partitions)
      throws ReflectiveOperationException {
    InputPartition[] out = partitions.toArray(InputPartition[]::new);
    for (int i = 0; i < out.length; i++) out[i] = ObjectCopy.of(out[i]);
    return out;
  }

  /** Returns the tasks of the other files; the reader skips row groups by `rows`, conditions by the
      id of their column. */
  static List<ScanTask> without(
      Set<String> locations, Iterable<ScanTask> tasks, Map<Integer, Expression> rows) {
    List<ScanTask> out = new ArrayList<>();
    Narrowing narrowing = new Narrowing(rows);
    for (ScanTask task : tasks) {
      if (!locations.contains(file(task).location())) out.add(narrowing.of(task));
    }
    return out;
  }

  /** Returns the planned partitions without some files. A join that relies on how rows are grouped
      needs a group also where all its files are gone. */
  static InputPartition[] without(Set<String> locations, InputPartition[] planned)
      throws Exception {
    List<InputPartition> out = new ArrayList<>();
    for (InputPartition partition : planned) {
      ScanTaskGroup<ScanTask> group = IcebergReflection.taskGroup(partition);
      List<ScanTask> remaining = without(locations, group.tasks(), Map.of());
      if (remaining.isEmpty() && group.groupingKey().size() == 0) continue;
      if (remaining.size() < group.tasks().size()) {
        IcebergReflection.setTaskGroup(
            partition, new BaseScanTaskGroup<>(group.groupingKey(), remaining));
      }
      out.add(partition);
    }
    return out.toArray(InputPartition[]::new);
  }

  /**
   * Returns the keys of joins as conditions of Iceberg's own, by the id of their column.
   *
   * <p>The reader that skips row groups takes a column that a file does not have as null in all
   * rows. So there is no condition on a column with a default, which such a file reads instead.
   */
  static Map<Integer, Expression> rows(
      List<? extends KeyValues> keys, Schema schema, boolean caseSensitive) {
    Map<Integer, Expression> all = new LinkedHashMap<>();
    for (KeyValues set : keys) {
      Expression one = set.values() == null ? null : rows(set, schema, caseSensitive);
      Integer id = one == null ? null : column(one, schema, caseSensitive);
      if (id == null || hasDefault(id, schema) || isBytes(id, schema)) continue;
      if (!BoundRule.of(BoundRule.PARQUET, set.column().dataType(), null).proves()) continue;
      all.merge(id, one, Expressions::and);
    }
    return all;
  }

  /** Returns the only column of a condition; null if it has none or several. */
  private static Integer column(Expression condition, Schema schema, boolean caseSensitive) {
    Set<Integer> ids = Binder.boundReferences(schema.asStruct(), List.of(condition), caseSensitive);
    return ids.size() == 1 ? ids.iterator().next() : null;
  }

  /** Whether a field, or one that it is in, has a value where files do not have it. */
  private static boolean hasDefault(Integer id, Schema schema) {
    Map<Integer, Integer> parents = TypeUtil.indexParents(schema.asStruct());
    for (Integer at = id; at != null; at = parents.get(at)) {
      Types.NestedField field = schema.findField(at);
      if (field == null || field.initialDefault() != null) return true;
    }
    return false;
  }

  /** Whether a column is of bytes, which imported files may have as text: Iceberg's reader of row
      groups fails on that. */
  private static boolean isBytes(int id, Schema schema) {
    Type.TypeID type = schema.findField(id).type().typeId();
    return type == Type.TypeID.BINARY || type == Type.TypeID.FIXED;
  }

  private static Expression rows(KeyValues set, Schema schema, boolean caseSensitive) {
    try {
      org.apache.spark.sql.catalyst.expressions.Expression range =
          RuntimeRowFilter.reader(set.column(), set.values());
      if (range == null) return null;
      Predicate predicate =
          ScalaInterop.orNull(DataSourceV2Strategy$.MODULE$.translateFilterV2(range));
      Expression converted = predicate == null ? null : SparkV2Filters.convert(predicate);
      // One that does not fit the column would fail in the readers: better here.
      if (converted != null) Binder.bind(schema.asStruct(), converted, caseSensitive);
      return converted;
    } catch (Exception unfit) {
      return null;
    }
  }

  /** Makes tasks again, with one more condition: the reader skips row groups by nothing else. */
  private static final class Narrowing {
    private final Map<Integer, Expression> rows;
    private final Map<Schema, String> schemas = new IdentityHashMap<>();
    private final Map<Integer, String> specs = new HashMap<>();

    Narrowing(Map<Integer, Expression> rows) {
      this.rows = rows;
    }

    /** Returns the conditions for files of a spec; null: none. The columns that it is an identity of
        are read from the partition; imported files do not have them, or have other values. */
    private Expression rows(PartitionSpec spec) {
      return rows.entrySet().stream()
          .filter(each -> !spec.identitySourceIds().contains(each.getKey()))
          .map(Map.Entry::getValue)
          .reduce(Expressions::and)
          .orElse(null);
    }

    ScanTask of(ScanTask given) {
      if (!(given instanceof BaseFileScanTask task) || given.getClass() != BaseFileScanTask.class
          || file(task).format() != FileFormat.PARQUET) {
        return given;
      }
      Expression more = rows(task.spec());
      if (more == null) return given;
      return new BaseFileScanTask(
          file(task), task.deletes().toArray(DeleteFile[]::new),
          schemas.computeIfAbsent(task.schema(), SchemaParser::toJson),
          specs.computeIfAbsent(
              task.spec().specId(), id -> PartitionSpecParser.toJson(task.spec())),
          ResidualEvaluator.unpartitioned(Expressions.and(task.residual(), more)));
    }
  }
}
