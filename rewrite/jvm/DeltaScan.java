package rewrite.jvm;

import java.util.List;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * What a read of a Delta table tells about the table. Loaded only where Delta is.
 *
 * <p>Only PreparedDeltaFileIndex is a user's read. DELETE, UPDATE, MERGE, OPTIMIZE and streams scan
 * through other indexes, and must see every file.
 */
public final class DeltaScan implements IndexedScan, ColumnIdentities {
  private final PreparedDeltaFileIndex files;
  private final Metadata metadata;

  private DeltaScan(PreparedDeltaFileIndex files) {
    this.files = files;
    this.metadata = files.metadata();
  }

  /** The scan, or null if the index is not that of a user's read. */
  public static DeltaScan of(FileIndex index) {
    return index.getClass() == PreparedDeltaFileIndex.class
        ? new DeltaScan((PreparedDeltaFileIndex) index)
        : null;
  }

  public String table() {
    return "delta\n" + metadata.id() + "\n" + files.deltaLog().dataPath().toString();
  }

  public ColumnIdentities columns() {
    return this;
  }

  public String json(List path, DataType type) {
    boolean byId = metadata.columnMappingMode().name().equals("id");
    StructType within = metadata.schema();
    StringBuilder identity = new StringBuilder();
    StringBuilder name = new StringBuilder();
    StructField field = null;
    for (int i = 0; i < path.size(); i++) {
      if (within == null) return null;
      field = named(within, (String) path.get(i));
      if (field == null) return null;
      identity.append(i == 0 ? "" : ".").append(escape(physical(field)));
      name.append(i == 0 ? "" : ".").append(escape(field.name()));
      within = field.dataType() instanceof StructType ? (StructType) field.dataType() : null;
    }
    if (byId) {
      if (!field.metadata().contains("delta.columnMapping.id")) return null;
      identity = new StringBuilder("#" + field.metadata().getLong("delta.columnMapping.id"));
    }
    return "{\"identity\":" + Question.quote(identity.toString()) + ",\"name\":"
        + Question.quote(name.toString()) + ",\"type\":"
        + Question.quote(type.catalogString()) + "}";
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

  /** As skipping/tables/delta.py spells identities: a dot inside a name is no step down. */
  private static String escape(String name) {
    return name.indexOf('.') < 0 && name.indexOf('`') < 0
        ? name
        : "`" + name.replace("`", "``") + "`";
  }
}
