package rewrite.jvm.source;

import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileScanTask;
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
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.predicate.KeyValues;

/** What the manifests of an Iceberg table say of its files: partitions and bounds. */
final class IcebergStatistics {
  private IcebergStatistics() {}

  /** The locations of the tasks' files whose partition proves that a column holds none of some
      Catalyst values, as Iceberg projects a condition on its partitions; but not where a value of
      the partition may be wrong (BoundRule). */
  static Set withoutPartition(
      List tasks, Types.NestedField field, KeyValues values, boolean caseSensitive) {
    Set out = new HashSet();
    // Iceberg tells 0.0 from -0.0, and Spark does not.
    Type.TypeID type = field.type().typeId();
    if (type == Type.TypeID.FLOAT || type == Type.TypeID.DOUBLE) return out;
    Map evaluators = new HashMap();
    for (int i = 0; i < tasks.size(); i++) {
      FileScanTask task = ((ScanTask) tasks.get(i)).asFileScanTask();
      PartitionSpec spec = task.spec();
      Integer id = Integer.valueOf(spec.specId());
      if (!evaluators.containsKey(id)) {
        evaluators.put(id, evaluator(spec, field, values, caseSensitive));
      }
      Evaluator evaluator = (Evaluator) evaluators.get(id);
      StructLike partition = task.file().partition();
      if (evaluator == null || evaluator.eval(partition)) continue;
      if (!IcebergTransforms.mayMisplace(spec, field, partition)) out.add(task.file().location());
    }
    return out;
  }

  /** What says whether a partition may have one of the values; null: it says nothing. */
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

  private static Expression in(String name, List values) {
    List literals = new ArrayList();
    for (int i = 0; i < values.size(); i++) {
      literals.add(literal(values.get(i)));
    }
    return Expressions.in(name, (Iterable) literals);
  }

  private static Expression within(
      String name, KeyRanges ranges, PartitionSpec spec, Types.NestedField field) {
    List pairs = ranges.asked().pairs();
    List values = new ArrayList();
    Expression any = Expressions.alwaysFalse();
    for (int i = 0; i < pairs.size(); i++) {
      Object[] pair = (Object[]) pairs.get(i);
      if (KeyRanges.isSingle(pair[0], pair[1])) {
        values.add(pair[0]);
        continue;
      }
      Expression all = Expressions.alwaysTrue();
      if (pair[0] != null && !IcebergTransforms.mayOverflow(spec, field, pair[0])) {
        all = Expressions.and(all, Expressions.greaterThanOrEqual(name, literal(pair[0])));
      }
      if (pair[1] != null && !IcebergTransforms.mayOverflow(spec, field, pair[1])) {
        all = Expressions.and(all, Expressions.lessThanOrEqual(name, literal(pair[1])));
      }
      any = Expressions.or(any, all);
    }
    return values.isEmpty() ? any : Expressions.or(any, in(name, values));
  }

  private static Object literal(Object value) {
    if (value instanceof UTF8String) return value.toString();
    if (value instanceof Decimal) return ((Decimal) value).toJavaBigDecimal();
    return value instanceof byte[] ? (Object) ByteBuffer.wrap((byte[]) value) : value;
  }

  /** The bounds of some columns in all files of a snapshot, in the order of the fields, as far as
      their rules take them. */
  static List bounds(TableScan snapshot, List fields, List rules) throws Exception {
    List out = new ArrayList();
    // The snapshot may know a column by another name, or not at all.
    Set names = new HashSet();
    for (int i = 0; i < fields.size(); i++) {
      Types.NestedField field = (Types.NestedField) fields.get(i);
      out.add(new ColumnBounds(SparkSchemaUtil.convert(field.type())));
      String name = snapshot.schema().findColumnName(field.fieldId());
      if (name != null) names.add(name);
    }
    if (names.isEmpty()) return out;
    TableScan whole = snapshot.ignoreResiduals();
    CloseableIterable tasks = whole.includeColumnStats(names).planFiles();
    try {
      for (Iterator each = tasks.iterator(); each.hasNext(); ) {
        FileScanTask task = ((ScanTask) each.next()).asFileScanTask();
        for (int i = 0; i < fields.size(); i++) {
          add(
              (ColumnBounds) out.get(i), task, (Types.NestedField) fields.get(i),
              (BoundRule) rules.get(i));
        }
      }
    } finally {
      tasks.close();
    }
    return out;
  }

  private static void add(
      ColumnBounds bounds, FileScanTask task, Types.NestedField field, BoundRule rule) {
    Integer id = Integer.valueOf(field.fieldId());
    // Read from the partition, whatever the file has: the file may have been imported.
    if (task.spec().identitySourceIds().contains(id)) return;
    DataFile file = task.file();
    Object lower = bound(file.lowerBounds(), id, field.type());
    Object upper = bound(file.upperBounds(), id, field.type());
    // How many rows files of deletes take is not known.
    Long rows = task.deletes().isEmpty() ? Long.valueOf(file.recordCount()) : null;
    Map nulls = file.nullValueCounts();
    bounds.add(
        file.location(), rule.widen(lower, upper), rows,
        nulls == null ? null : (Long) nulls.get(id));
  }

  /** A bound as a Catalyst value; null where there is none, or bytes that are none: text may be cut
      within a character. */
  private static Object bound(Map bounds, Integer id, Type type) {
    ByteBuffer bytes = bounds == null ? null : (ByteBuffer) bounds.get(id);
    try {
      return bytes == null ? null : catalyst(Conversions.fromByteBuffer(type, bytes), type);
    } catch (RuntimeException unreadable) {
      return null;
    }
  }

  private static Object catalyst(Object value, Type type) {
    switch (type.typeId()) {
      case BOOLEAN:
      case INTEGER:
      case LONG:
      case FLOAT:
      case DOUBLE:
      case DATE:
      case TIMESTAMP:
        return value;
      case STRING:
        return UTF8String.fromString(value.toString());
      case DECIMAL:
        return org.apache.spark.sql.types.Decimal$.MODULE$.apply((BigDecimal) value);
      case BINARY:
      case FIXED:
        return ByteBuffers.toByteArray((ByteBuffer) value);
      default:
        return null; // Spark has it as another type
    }
  }
}
