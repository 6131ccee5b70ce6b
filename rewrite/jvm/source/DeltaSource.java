package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import rewrite.jvm.bridge.MessageWriter;

/**
 * What a read of a Delta table tells about the table. Loaded only where Delta is.
 *
 * <p>Only PreparedDeltaFileIndex is a user's read. DELETE, UPDATE, MERGE, OPTIMIZE and streams scan
 * through other indexes, and must see every file.
 */
public final class DeltaSource extends FileSource {
  private final PreparedDeltaFileIndex files;
  private final Metadata metadata;

  private DeltaSource(HadoopFsRelation relation, PreparedDeltaFileIndex files) {
    super(relation);
    this.files = files;
    this.metadata = files.metadata();
  }

  /** The scan, or null if the relation is not that of a user's read. */
  public static DeltaSource of(HadoopFsRelation relation) {
    FileIndex index = relation.location();
    return index.getClass() == PreparedDeltaFileIndex.class
        ? new DeltaSource(relation, (PreparedDeltaFileIndex) index)
        : null;
  }

  public String table() {
    return "delta\n" + metadata.id() + "\n" + files.deltaLog().dataPath().toString();
  }

  public int files() {
    return files.preparedScan().files().size();
  }

  public String mark(InternalRow partition, FileStatus file) {
    return "";
  }

  public String identity(List path) {
    List fields = fields(path);
    if (fields == null) return null;
    if (metadata.columnMappingMode().name().equals("id")) {
      StructField last = (StructField) fields.get(fields.size() - 1);
      return last.metadata().contains("delta.columnMapping.id")
          ? "#" + last.metadata().getLong("delta.columnMapping.id")
          : null;
    }
    List names = new ArrayList();
    for (int i = 0; i < fields.size(); i++) {
      names.add(physical((StructField) fields.get(i)));
    }
    return MessageWriter.dotted(names);
  }

  public Map describe(List path, DataType type) {
    String identity = identity(path);
    if (identity == null) return null;
    List fields = fields(path);
    List names = new ArrayList();
    for (int i = 0; i < fields.size(); i++) {
      names.add(((StructField) fields.get(i)).name());
    }
    return MessageWriter.column(identity, names, type);
  }

  /** The fields from the table down to the column, or null. */
  private List fields(List path) {
    List fields = new ArrayList();
    StructType within = metadata.schema();
    for (int i = 0; i < path.size(); i++) {
      StructField field = within == null ? null : named(within, (String) path.get(i));
      if (field == null) return null;
      fields.add(field);
      within = field.dataType() instanceof StructType ? (StructType) field.dataType() : null;
    }
    return fields;
  }

  private static StructField named(StructType struct, String name) {
    StructField[] fields = struct.fields();
    for (int i = 0; i < fields.length; i++) {
      if (fields[i].name().equals(name)) return fields[i];
    }
    return null;
  }

  private static String physical(StructField field) {
    return field.metadata().contains("delta.columnMapping.physicalName")
        ? field.metadata().getString("delta.columnMapping.physicalName")
        : field.name();
  }
}
