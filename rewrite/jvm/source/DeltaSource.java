package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.files.TahoeBatchFileIndex;
import org.apache.spark.sql.delta.files.TahoeFileIndex;
import org.apache.spark.sql.delta.stats.DeltaScan;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.bridge.SkippingConf;

/**
 * What a read of a Delta table tells about the table. Loaded only where Delta is.
 *
 * <p>PreparedDeltaFileIndex is a user's read, and TahoeBatchFileIndex the look of a command for the
 * rows that it changes: the transaction has noted the files before, as candidates, so that leaving
 * some unopened changes no conflict. OPTIMIZE, streams and whatever else scans see every file.
 */
public final class DeltaSource extends FileSource {
  private static final String LEAST = "minValues";
  private static final String GREATEST = "maxValues";
  private static final String TYPE_CHANGES = "delta.typeChanges";

  /** The release of Delta whose commands are known to note their files before they look. */
  private static final String RELEASE = "4.4.0";

  /** What DELETE, UPDATE and MERGE call the scans in which they look for their rows. */
  private static final List COMMANDS = Arrays.asList(new Object[] {"delete", "update", "batch"});

  private final TahoeFileIndex index;
  private final Snapshot snapshot;
  private final scala.collection.Iterable files;
  private final Metadata metadata;

  private DeltaSource(
      HadoopFsRelation relation, TahoeFileIndex index, Snapshot snapshot,
      scala.collection.Iterable files) {
    super(relation);
    this.index = index;
    this.snapshot = snapshot;
    this.files = files;
    this.metadata = index.metadata();
  }

  /** The scan, or null if the relation is not that of a read whose files may be left out. */
  public static DeltaSource of(HadoopFsRelation relation) {
    FileIndex index = relation.location();
    if (index.getClass() == PreparedDeltaFileIndex.class) {
      PreparedDeltaFileIndex read = (PreparedDeltaFileIndex) index;
      DeltaScan scan = read.preparedScan();
      return new DeltaSource(relation, read, scan.scannedSnapshot(), scan.files());
    }
    if (index.getClass() == TahoeBatchFileIndex.class && servesCommands()) {
      TahoeBatchFileIndex look = (TahoeBatchFileIndex) index;
      boolean isKnown =
          COMMANDS.contains(look.actionType()) && look.snapshot() instanceof Snapshot;
      return isKnown
          ? new DeltaSource(relation, look, (Snapshot) look.snapshot(), look.addFiles())
          : null;
    }
    return null;
  }

  private static boolean servesCommands() {
    return SkippingConf.servesCommands() && RELEASE.equals(io.delta.package$.MODULE$.VERSION());
  }

  public String table() {
    return "delta\n" + metadata.id() + "\n" + index.deltaLog().dataPath().toString();
  }

  public int files() {
    return files.size();
  }

  public String mark(InternalRow partition, FileStatus file) {
    return "";
  }

  /** MERGE counts the rows of its source while it joins them, and of a join with a side that turns
      out to be empty adaptive execution may not run the other one. */
  public boolean keepsOne() {
    return ScanSources.isOfCommand(relation);
  }

  public Set empty() {
    Set out = new HashSet();
    List all = ScalaInterop.list(files);
    for (int i = 0; i < all.size(); i++) {
      AddFile file = (AddFile) all.get(i);
      scala.Option rows = file.numLogicalRecords();
      if (rows.isDefined() && ((Number) rows.get()).longValue() == 0) {
        out.add(index.absolutePath(file.path()).toString());
      }
    }
    return out;
  }

  public String version() {
    return String.valueOf(snapshot.version());
  }

  protected List directories() {
    List out = new ArrayList();
    Map byValues = new HashMap();
    List found = ScalaInterop.list(files);
    for (int i = 0; i < found.size(); i++) {
      AddFile file = (AddFile) found.get(i);
      List alike = (List) byValues.get(file.partitionValues());
      if (alike == null) byValues.put(file.partitionValues(), alike = new ArrayList());
      alike.add(index.fileStatusWithMetadataFromAddFile(file));
    }
    for (Iterator each = byValues.entrySet().iterator(); each.hasNext(); ) {
      Map.Entry alike = (Map.Entry) each.next();
      scala.collection.immutable.Map values =
          (scala.collection.immutable.Map) alike.getKey();
      out.add(
          new PartitionDirectory(
              index.getPartitionValuesRow(values), ScalaInterop.seq((List) alike.getValue())));
    }
    return out;
  }

  public boolean hasStatistics(List path) {
    List fields = fields(path);
    if (fields == null || !rule(fields).proves()) return false;
    StructField least = named(snapshot.statsSchema(), LEAST);
    for (int i = 0; least != null && i < path.size(); i++) {
      boolean isStruct = least.dataType() instanceof StructType;
      String name = physical((StructField) fields.get(i));
      least = isStruct ? named((StructType) least.dataType(), name) : null;
    }
    return least != null;
  }

  /** What bounds of the last of some fields prove. */
  private static BoundRule rule(List fields) {
    StructField last = (StructField) fields.get(fields.size() - 1);
    boolean isWidened = last.metadata().contains(TYPE_CHANGES);
    return BoundRule.of(BoundRule.DELTA, last.dataType(), isWidened ? BoundRule.WIDENED : null);
  }

  /** By Delta's own expressions, which know how its statistics are cut: texts to a prefix, times to
      the millisecond. */
  public List bounds(List paths) {
    List columns = new ArrayList();
    columns.add(new Column("path"));
    columns.add(new Column("deletionVector.cardinality"));
    columns.add(snapshot.getStatsColumnOrNullLiteral("numRecords", reversed(new ArrayList())));
    for (int i = 0; i < paths.size(); i++) {
      scala.collection.immutable.List path = reversed((List) paths.get(i));
      columns.add(snapshot.getStatsColumnOrNullLiteral(LEAST, path));
      columns.add(snapshot.getStatsColumnOrNullLiteral(GREATEST, path));
      columns.add(snapshot.getStatsColumnOrNullLiteral("nullCount", path));
    }
    SparkPlan plan =
        (snapshot.withStats().select(ScalaInterop.seq(columns)))
            .queryExecution().executedPlan();
    InternalRow[] rows = plan.executeCollect();
    List out = new ArrayList();
    for (int i = 0; i < paths.size(); i++) {
      out.add(bounds(rows, plan, 3 * i + 3, rule(fields((List) paths.get(i)))));
    }
    return out;
  }

  /** Those of the column whose least value is at a place in the rows. */
  private ColumnBounds bounds(InternalRow[] rows, SparkPlan plan, int at, BoundRule rule) {
    DataType type = plan.output().apply(at).dataType();
    if (!type.equals(plan.output().apply(at + 1).dataType())) return null;
    ColumnBounds out = new ColumnBounds(type);
    for (int i = 0; i < rows.length; i++) {
      String location = index.absolutePath(rows[i].getUTF8String(0).toString()).toString();
      Long deleted = number(rows[i], 1);
      Long live = number(rows[i], 2);
      if (live != null && deleted != null) {
        live = Long.valueOf(live.longValue() - deleted.longValue());
      }
      Object least = value(rows[i], at, type);
      Object greatest = value(rows[i], at + 1, type);
      out.add(location, rule.widen(least, greatest), live, number(rows[i], at + 2));
    }
    return out;
  }

  private static Long number(InternalRow row, int i) {
    return row.isNullAt(i) ? null : Long.valueOf(row.getLong(i));
  }

  /** A value that keeps nothing of its row. */
  private static Object value(InternalRow row, int i, DataType type) {
    if (row.isNullAt(i)) return null;
    Object value = row.get(i, type);
    return value instanceof UTF8String ? ((UTF8String) value).copy() : value;
  }

  /** A path as Delta's statistics take it. */
  private static scala.collection.immutable.List reversed(List path) {
    List out = new ArrayList(path);
    Collections.reverse(out);
    return ScalaInterop.seq(out);
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
