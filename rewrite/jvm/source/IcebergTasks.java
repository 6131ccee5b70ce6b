package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.BaseFileScanTask;
import org.apache.iceberg.BaseScanTaskGroup;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.FileScanTask;
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
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.RuntimeRowFilter;

/** The tasks of an Iceberg scan, less some files and with a condition on row groups. */
final class IcebergTasks {
  private IcebergTasks() {}

  /** The data file of a task. */
  static DataFile file(Object task) {
    return ((ScanTask) task).asFileScanTask().file();
  }

  /** Adds the files in a partition of a plan: of each location the bytes. */
  static void addFiles(Object partition, Map files) throws Exception {
    Iterator each = IcebergReflection.taskGroup(partition).tasks().iterator();
    while (each.hasNext()) {
      DataFile file = file(each.next());
      files.put(file.location(), Long.valueOf(file.fileSizeInBytes()));
    }
  }

  /** The tasks of the other files; the reader skips row groups by `rows`, conditions by the column
      that each is about. */
  static List without(Set locations, List tasks, Map rows) {
    List kept = new ArrayList();
    Narrowing narrowing = rows.isEmpty() ? null : new Narrowing(rows);
    for (int i = 0; i < tasks.size(); i++) {
      if (locations.contains(file(tasks.get(i)).location())) continue;
      kept.add(narrowing == null ? tasks.get(i) : narrowing.of(tasks.get(i)));
    }
    return kept;
  }

  /** The planned partitions less some files. A join that relies on how rows are grouped needs a
      group also where all its files are gone. */
  static InputPartition[] without(Set locations, InputPartition[] planned) throws Exception {
    List out = new ArrayList();
    for (int i = 0; i < planned.length; i++) {
      ScanTaskGroup group = IcebergReflection.taskGroup(planned[i]);
      List kept = without(locations, new ArrayList(group.tasks()), Collections.EMPTY_MAP);
      if (kept.isEmpty() && group.groupingKey().size() == 0) continue;
      if (kept.size() < group.tasks().size()) {
        IcebergReflection.setTaskGroup(
            planned[i], new BaseScanTaskGroup(group.groupingKey(), kept));
      }
      out.add(planned[i]);
    }
    return (InputPartition[]) out.toArray(new InputPartition[0]);
  }

  /**
   * The keys of joins as conditions of Iceberg's own, by the id of the column that each is about.
   *
   * <p>To the reader that skips row groups a column which a file does not have is null in all rows.
   * So there is none about a column with a default, which such a file reads in its place.
   */
  static Map rows(List keys, Schema schema, boolean caseSensitive) {
    Map all = new LinkedHashMap();
    for (int i = 0; i < keys.size(); i++) {
      KeyValues set = (KeyValues) keys.get(i);
      Expression one = set.values() == null ? null : rows(set, schema, caseSensitive);
      Integer id = one == null ? null : column(one, schema, caseSensitive);
      if (id == null || hasDefault(id, schema) || isBytes(id, schema)) continue;
      if (!BoundRule.of(BoundRule.PARQUET, set.column().dataType(), null).proves()) continue;
      Expression known = (Expression) all.get(id);
      all.put(id, known == null ? one : Expressions.and(known, one));
    }
    return all;
  }

  /** The only column of a condition; null if it is about none or several. */
  private static Integer column(Expression condition, Schema schema, boolean caseSensitive) {
    Set ids = Binder.boundReferences(
        schema.asStruct(), Collections.singletonList(condition), caseSensitive);
    return ids.size() == 1 ? (Integer) ids.iterator().next() : null;
  }

  /** Whether a field, or one that it is in, has a value where files do not have it. */
  private static boolean hasDefault(Integer id, Schema schema) {
    Map parents = TypeUtil.indexParents(schema.asStruct());
    for (Integer at = id; at != null; at = (Integer) parents.get(at)) {
      Types.NestedField field = schema.findField(at.intValue());
      if (field == null || field.initialDefault() != null) return true;
    }
    return false;
  }

  /** Whether a column is of bytes, which imported files may have as text: Iceberg's reader of row
      groups fails on that. */
  private static boolean isBytes(Integer id, Schema schema) {
    Type.TypeID type = schema.findField(id.intValue()).type().typeId();
    return type == Type.TypeID.BINARY || type == Type.TypeID.FIXED;
  }

  private static Expression rows(KeyValues set, Schema schema, boolean caseSensitive) {
    try {
      org.apache.spark.sql.catalyst.expressions.Expression range =
          RuntimeRowFilter.reader(set.column(), set.values());
      if (range == null) return null;
      scala.Option predicate = DataSourceV2Strategy$.MODULE$.translateFilterV2(range);
      if (predicate.isEmpty()) return null;
      Expression converted = SparkV2Filters.convert((Predicate) predicate.get());
      // One that does not fit the column would fail in the readers: better here.
      if (converted != null) Binder.bind(schema.asStruct(), converted, caseSensitive);
      return converted;
    } catch (Exception unfit) {
      return null;
    }
  }

  /** Makes tasks anew, with one more condition: the reader skips row groups by nothing else. */
  private static final class Narrowing {
    private final Map rows;
    private final Map schemas = new IdentityHashMap();
    private final Map specs = new HashMap();

    Narrowing(Map rows) {
      this.rows = rows;
    }

    /** The conditions for files of a spec. The columns that it is an identity of are read from the
        partition; files that were imported do not have them, or others' values. */
    private Expression rows(PartitionSpec spec) {
      Expression all = null;
      for (Iterator each = rows.entrySet().iterator(); each.hasNext(); ) {
        Map.Entry entry = (Map.Entry) each.next();
        if (spec.identitySourceIds().contains(entry.getKey())) continue;
        Expression one = (Expression) entry.getValue();
        all = all == null ? one : Expressions.and(all, one);
      }
      return all;
    }

    Object of(Object given) {
      if (given.getClass() != BaseFileScanTask.class) return given;
      FileScanTask task = (FileScanTask) given;
      if (file(task).format() != FileFormat.PARQUET) return given;
      Expression more = rows(task.spec());
      if (more == null) return given;
      Object schema = schemas.get(task.schema());
      if (schema == null) {
        schema = SchemaParser.toJson(task.schema());
        schemas.put(task.schema(), schema);
      }
      Integer id = Integer.valueOf(task.spec().specId());
      Object spec = specs.get(id);
      if (spec == null) {
        spec = PartitionSpecParser.toJson(task.spec());
        specs.put(id, spec);
      }
      DeleteFile[] deletes = task.deletes().toArray(new DeleteFile[0]);
      return new BaseFileScanTask(
          file(task), deletes, (String) schema, (String) spec,
          ResidualEvaluator.unpartitioned(Expressions.and(task.residual(), more)));
    }
  }
}
