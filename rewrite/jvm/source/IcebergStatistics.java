package rewrite.jvm.source;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.ScanTask;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.expressions.Evaluator;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.expressions.Projections;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.types.Conversions;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.iceberg.util.ByteBuffers;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.Decimal$;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.Range;
import rewrite.jvm.predicate.ValueTypes;

/** What the manifests of an Iceberg table know of its files: partitions and bounds. */
final class IcebergStatistics {
  private IcebergStatistics() {}

  /** Returns the locations of the files whose partition proves that a column has none of some
      Catalyst values, as Iceberg projects a condition on its partitions; but not where a value of
      the partition may be wrong (BoundRule). */
  static Set<String> withoutPartition(
      List<ScanTask> tasks, Types.NestedField field, KeyValues values, boolean caseSensitive) {
    Set<String> out = new HashSet<>();
    // Iceberg distinguishes 0.0 from -0.0, and Spark does not.
    Type.TypeID type = field.type().typeId();
    if (type == Type.TypeID.FLOAT || type == Type.TypeID.DOUBLE) return out;
    Map<Integer, Evaluator> evaluators = new HashMap<>();
    for (ScanTask each : tasks) {
      FileScanTask task = each.asFileScanTask();
      PartitionSpec spec = task.spec();
      Evaluator evaluator =
          evaluators.computeIfAbsent(
              spec.specId(), id -> evaluator(spec, field, values, caseSensitive));
      StructLike partition = task.file().partition();
      if (evaluator == null || evaluator.eval(partition)) continue;
      if (!IcebergTransforms.mayMisplace(spec, field, partition)) out.add(task.file().location());
    }
    return out;
  }

  /** Returns the test whether a partition may have one of the values; null: any may. */
  private static Evaluator evaluator(
      PartitionSpec spec, Types.NestedField field, KeyValues values, boolean caseSensitive) {
    int id = field.fieldId();
    String name = spec.schema().findColumnName(id);
    if (name == null || spec.getFieldsBySourceId(id).isEmpty()) return null;
    Expression some =
        values.ranges() == null
            ? in(name, values.values())
            : within(name, values.ranges(), spec, field);
    return new Evaluator(
        spec.partitionType(), Projections.inclusive(spec, caseSensitive).project(some),
        caseSensitive);
  }

  /** Returns the value of a column in each file; null if a file is not in a partition of that value.
      Iceberg reads the column from the partition then. */
  static ColumnBounds partitionValues(List<ScanTask> tasks, Types.NestedField field) {
    DataType type = SparkSchemaUtil.convert(field.type());
    ColumnBounds out = new ColumnBounds(type);
    Set<String> found = new HashSet<>();
    for (ScanTask each : tasks) {
      FileScanTask task = each.asFileScanTask();
      int at = identity(task.spec(), field.fieldId());
      if (at < 0) return null;
      String location = task.file().location();
      if (!found.add(location)) continue;
      Object stored = task.file().partition().get(at, Object.class);
      Object value = stored == null ? null : catalyst(stored, field.type());
      if (stored == null) {
        out.addNull(location);
      } else if (value == null) {
        return null;
      } else {
        // A column that is a BIGINT now was an INT when the partition was written.
        boolean isInteger = ValueTypes.isCounted(type);
        out.add(location, isInteger ? ValueTypes.integer(type, ValueTypes.toLong(value)) : value);
      }
    }
    return out;
  }

  private static int identity(PartitionSpec spec, int id) {
    for (int i = 0; i < spec.fields().size(); i++) {
      PartitionField part = spec.fields().get(i);
      if (part.sourceId() == id && part.transform().isIdentity()) return i;
    }
    return -1;
  }

  private static Expression in(String name, List<?> values) {
    List<Object> literals = new ArrayList<>();
    values.forEach(value -> literals.add(literal(value)));
    return Expressions.in(name, literals);
  }

  private static Expression within(
      String name, KeyRanges ranges, PartitionSpec spec, Types.NestedField field) {
    List<Object> values = new ArrayList<>();
    Expression any = Expressions.alwaysFalse();
    for (Range range : ranges.coarsen().ranges()) {
      if (range.isSingle()) {
        values.add(range.min());
        continue;
      }
      Expression all = Expressions.alwaysTrue();
      if (range.min() != null && !IcebergTransforms.mayOverflow(spec, field, range.min())) {
        all = Expressions.and(all, Expressions.greaterThanOrEqual(name, literal(range.min())));
      }
      if (range.max() != null && !IcebergTransforms.mayOverflow(spec, field, range.max())) {
        all = Expressions.and(all, Expressions.lessThanOrEqual(name, literal(range.max())));
      }
      any = Expressions.or(any, all);
    }
    return values.isEmpty() ? any : Expressions.or(any, in(name, values));
  }

  private static Object literal(Object value) {
    if (value instanceof UTF8String) return value.toString();
    if (value instanceof Decimal decimal) return decimal.toJavaBigDecimal();
    return value instanceof byte[] bytes ? ByteBuffer.wrap(bytes) : value;
  }

  /** Returns the bounds of some columns in all files of a snapshot, in the order of the fields, as
      far as their rules trust them. */
  static List<ColumnBounds> bounds(
      TableScan snapshot, List<Types.NestedField> fields, List<BoundRule> rules) throws Exception {
    List<ColumnBounds> out =
        fields.stream()
            .map(field -> new ColumnBounds(SparkSchemaUtil.convert(field.type())))
            .toList();
    // The snapshot may know a column by another name, or not at all.
    List<String> names =
        fields.stream()
            .map(field -> snapshot.schema().findColumnName(field.fieldId()))
            .filter(Objects::nonNull)
            .distinct()
            .toList();
    if (names.isEmpty()) return out;
    TableScan all = snapshot.ignoreResiduals().includeColumnStats(names);
    try (CloseableIterable<FileScanTask> tasks = all.planFiles()) {
      for (FileScanTask task : tasks) {
        for (int i = 0; i < fields.size(); i++) {
          add(out.get(i), task, fields.get(i), rules.get(i));
        }
      }
    }
    return out;
  }

  private static void add(
      ColumnBounds bounds, FileScanTask task, Types.NestedField field, BoundRule rule) {
    int id = field.fieldId();
    DataFile file = task.file();
    // Read from the partition, whatever the file has: the file may have been imported.
    if (task.spec().identitySourceIds().contains(id)) {
      bounds.add(file.location(), null, null, null);
      return;
    }
    Object lower = readValue(file.lowerBounds(), id, field.type());
    Object upper = readValue(file.upperBounds(), id, field.type());
    // How many rows files of deletes take is not known.
    Long rows = task.deletes().isEmpty() ? file.recordCount() : null;
    Map<Integer, Long> nulls = file.nullValueCounts();
    bounds.add(
        file.location(), rule.widen(lower, upper), rows, nulls == null ? null : nulls.get(id));
  }

  /** Returns a bound as a Catalyst value; null if it is missing or unreadable: text may be cut within
      a character. */
  private static Object readValue(Map<Integer, ByteBuffer> bounds, int id, Type type) {
    ByteBuffer bytes = bounds == null ? null : bounds.get(id);
    try {
      return bytes == null ? null : catalyst(Conversions.fromByteBuffer(type, bytes), type);
    } catch (RuntimeException unreadable) {
      return null;
    }
  }

  private static Object catalyst(Object value, Type type) {
    return switch (type.typeId()) {
      case BOOLEAN, INTEGER, LONG, FLOAT, DOUBLE, DATE, TIMESTAMP -> value;
      case STRING -> UTF8String.fromString(value.toString());
      case DECIMAL -> Decimal$.MODULE$.apply((BigDecimal) value);
      case BINARY, FIXED -> ByteBuffers.toByteArray((ByteBuffer) value);
      default -> null; // Spark has it as another type
    };
  }
}
