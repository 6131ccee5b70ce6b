package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
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
import org.apache.spark.sql.delta.stats.DataSize;
import org.apache.spark.sql.delta.stats.DeltaScan;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.ObjectCopy;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.predicate.ColumnRef;

/**
 * What a read of a Delta table knows of the table. Loaded only where Delta is.
 *
 * <p>PreparedDeltaFileIndex is a user's read. TahoeBatchFileIndex is the look of a command for the
 * rows that it changes, or the micro-batch of a stream: the transaction has noted the files before,
 * as candidates, and the stream has chosen its offsets, so that leaving some unopened changes no
 * conflict and no offset. OPTIMIZE, change feeds and whatever else scans see every file.
 */
public final class DeltaSource extends FileSource {
  private static final String MIN = "minValues";
  private static final String MAX = "maxValues";
  private static final String TYPE_CHANGES = "delta.typeChanges";
  private static final String COLUMN_ID = "delta.columnMapping.id";
  private static final String PHYSICAL_NAME = "delta.columnMapping.physicalName";

  /** The releases of Delta whose commands are known to note their files before they look. */
  private static final Set<String> RELEASES = Set.of("3.3.3", "4.4.0");

  /** What DELETE, UPDATE and MERGE call the scans in which they look for their rows. */
  private static final Set<String> COMMANDS = Set.of("delete", "update", "batch");

  /** What a stream calls the scans of its micro-batches. */
  private static final String STREAM = "streaming";

  private final TahoeFileIndex index;
  /** Null for a stream: its files may be of other versions, with other rows, so that the statistics
      of a snapshot do not hold for them. */
  private final Snapshot snapshot;
  private final List<AddFile> files;
  private final Metadata metadata;
  private final String root;
  /** Those of the files, in their order. */
  private List<String> locations;
  private long bytes = -1; // not counted

  private DeltaSource(
      HadoopFsRelation relation, TahoeFileIndex index, Snapshot snapshot,
      scala.collection.Iterable<AddFile> files) {
    super(relation);
    this.index = index;
    this.snapshot = snapshot;
    this.files = ScalaInterop.asJava(files);
    this.metadata = index.metadata();
    this.root = index.path().toString();
  }

  /** Returns the scan; null if the relation is not that of a read whose files may be pruned. */
  public static DeltaSource of(HadoopFsRelation relation) {
    FileIndex index = relation.location();
    Class<?> type = index.getClass(); // exactly: a subclass may read other files
    if (type == PreparedDeltaFileIndex.class && index instanceof PreparedDeltaFileIndex read) {
      DeltaScan scan = read.preparedScan();
      return new DeltaSource(relation, read, scan.scannedSnapshot(), scan.files());
    }
    if (type != TahoeBatchFileIndex.class || !(index instanceof TahoeBatchFileIndex look)) return null;
    if (isOfStream(look)) return new DeltaSource(relation, look, null, look.addFiles());
    return isDmlEnabled() && COMMANDS.contains(look.actionType())
            && look.snapshot() instanceof Snapshot snapshot
        ? new DeltaSource(relation, look, snapshot, look.addFiles())
        : null;
  }

  /** Whether these are the files of a stream's micro-batch. */
  static boolean isOfStream(FileIndex index) {
    return index instanceof TahoeBatchFileIndex batch && batch.actionType().equals(STREAM);
  }

  private static boolean isDmlEnabled() {
    return SkippingConf.isDmlEnabled() && RELEASES.contains(io.delta.package$.MODULE$.VERSION());
  }

  /** Adds the steps of a read: all files, those of the partitions, those that statistics leave. */
  static void addSizes(FileIndex index, List<SizeStep> steps) {
    DeltaScan scan = ((PreparedDeltaFileIndex) index).preparedScan();
    addStep(steps, "table", scan.total());
    addStep(steps, "partitions", scan.partition());
    // Not `scanned`, which may be what `resize` reports.
    Long files = scan.scanned() == null ? null : number(scan.scanned().files());
    SizeStep.add(steps, "statistics", files, sumBytes(ScalaInterop.asJava(scan.files())));
  }

  private static void addStep(List<SizeStep> steps, String name, DataSize size) {
    if (size != null) SizeStep.add(steps, name, number(size.files()), number(size.bytesCompressed()));
  }

  private static Long number(scala.Option<Object> option) {
    return (Long) ScalaInterop.orNull(option);
  }

  @Override public String table() {
    return "delta\n" + metadata.id() + "\n" + index.deltaLog().dataPath();
  }

  @Override public int files() {
    return files.size();
  }

  /** The relation may report less; see `resize`. */
  @Override public long bytes() {
    if (bytes < 0) bytes = sumBytes(files);
    return bytes;
  }

  private static long sumBytes(List<AddFile> files) {
    return files.stream().mapToLong(AddFile::size).sum();
  }

  /** Not by way of Delta's file status, which parses each path several times. */
  @Override public List<String> locations() {
    if (locations == null) locations = files.stream().map(file -> location(file.path())).toList();
    return locations;
  }

  private String location(String path) {
    return isPlain(path) && !root.endsWith("/")
        ? root + "/" + path
        : index.absolutePath(path).toString();
  }

  /** Whether a path in the log is the end of the file's location: it is relative, and has no escapes,
      no steps up and no empty names. */
  private static boolean isPlain(String path) {
    char before = '/';
    for (int i = 0; i < path.length(); i++) {
      char c = path.charAt(i);
      boolean isOfName =
          c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
              || c == '-' || c == '=';
      if (!isOfName && (before == '/' || c != '.' && c != '/')) return false;
      before = c;
    }
    return before != '/';
  }

  @Override public Set<String> findPrunable(FileCounter counter) {
    Set<String> out = new HashSet<>();
    for (int i = 0; i < files.size(); i++) {
      String location = locations().get(i);
      long size = files.get(i).size();
      if (counter.drops(counter.ordinal(location, size, ""), location, size)) out.add(location);
    }
    return out;
  }

  @Override public boolean canListOthers() {
    return index instanceof PreparedDeltaFileIndex;
  }

  @Override public FileIndex without(Set<String> pruned) {
    if (!(index instanceof PreparedDeltaFileIndex read)) return null;
    List<AddFile> remaining = new ArrayList<>();
    for (int i = 0; i < files.size(); i++) {
      if (!pruned.contains(locations().get(i))) remaining.add(files.get(i));
    }
    try {
      DeltaScan scan =
          ObjectCopy.with(read.preparedScan(), "files", ScalaInterop.asScala(remaining));
      return ObjectCopy.with(read, "preparedScan", scan);
    } catch (ReflectiveOperationException changed) {
      return null;
    }
  }

  @Override public HadoopFsRelation resize(double fraction) {
    if (!(index instanceof PreparedDeltaFileIndex read)) return null;
    try {
      DeltaScan scan = read.preparedScan();
      DataSize all = scan.scanned();
      if (all == null) return null;
      long bytes = (long) Math.ceil(fraction * bytes());
      DataSize some =
          all.copy(
              scala.Option.apply((Object) bytes), all.rows(), all.files(), all.logicalRows());
      PreparedDeltaFileIndex resized =
          ObjectCopy.with(read, "preparedScan", ObjectCopy.with(scan, "scanned", some));
      return relation.copy(
          resized, relation.partitionSchema(), relation.dataSchema(), relation.bucketSpec(),
          relation.fileFormat(), relation.options(), relation.sparkSession());
    } catch (ReflectiveOperationException changed) {
      return null;
    }
  }

  @Override public String mark(InternalRow partition, FileStatus file) {
    return "";
  }

  /** MERGE counts the rows of its source while it joins them, and adaptive execution may not run one
      side of a join whose other side turns out to be empty. */
  @Override public boolean keepsOne() {
    return index instanceof TahoeBatchFileIndex && snapshot != null;
  }

  @Override public Set<String> empty() {
    Set<String> out = new HashSet<>();
    for (AddFile file : files) {
      Long rows = number(file.numLogicalRecords());
      if (rows != null && rows == 0) out.add(location(file.path()));
    }
    return out;
  }

  /** If the table's folder is restored, a number returns with other files, and a newer commit. */
  @Override public String version() {
    return snapshot == null
        ? null
        : snapshot.version() + "@" + snapshot.logSegment().lastCommitFileModificationTimestamp();
  }

  @Override protected List<PartitionDirectory> directories() {
    Map<scala.collection.immutable.Map<String, String>, List<FileStatusWithMetadata>> byValues =
        new HashMap<>();
    for (AddFile file : files) {
      byValues.computeIfAbsent(file.partitionValues(), values -> new ArrayList<>())
          .add(index.fileStatusWithMetadataFromAddFile(file));
    }
    List<PartitionDirectory> out = new ArrayList<>();
    byValues.forEach(
        (values, found) ->
            out.add(
                new PartitionDirectory(
                    index.getPartitionValuesRow(values), ScalaInterop.asScala(found))));
    return out;
  }

  @Override public boolean hasStatistics(List<String> path) {
    List<StructField> fields = fields(path);
    if (snapshot == null || fields == null || !rule(fields).proves()) return false;
    StructField min = find(snapshot.statsSchema(), MIN);
    for (StructField field : fields) {
      if (min == null) return false;
      min = find(min.dataType(), physicalName(field));
    }
    return min != null;
  }

  /** Returns the rule for bounds of the last of some fields. */
  private static BoundRule rule(List<StructField> fields) {
    StructField last = fields.get(fields.size() - 1);
    boolean isWidened = last.metadata().contains(TYPE_CHANGES);
    return BoundRule.of(BoundRule.DELTA, last.dataType(), isWidened ? BoundRule.WIDENED : null);
  }

  /** By Delta's own expressions, which know how its statistics are cut: texts to a prefix, times to
      the millisecond. */
  @Override public List<ColumnBounds> bounds(List<List<String>> paths) {
    List<Column> columns = new ArrayList<>();
    columns.add(new Column("path"));
    columns.add(new Column("deletionVector.cardinality"));
    columns.add(snapshot.getStatsColumnOrNullLiteral("numRecords", reverse(List.of())));
    for (List<String> path : paths) {
      for (String statistic : List.of(MIN, MAX, "nullCount")) {
        columns.add(snapshot.getStatsColumnOrNullLiteral(statistic, reverse(path)));
      }
    }
    SparkPlan plan =
        snapshot.withStats().select(ScalaInterop.asScala(columns)).queryExecution().executedPlan();
    InternalRow[] rows = plan.executeCollect();
    List<ColumnBounds> out = new ArrayList<>();
    for (List<String> path : paths) {
      out.add(bounds(rows, plan, 3 * out.size() + 3, rule(fields(path))));
    }
    return out;
  }

  /** Returns those of the column whose min is at a place in the rows. */
  private ColumnBounds bounds(InternalRow[] rows, SparkPlan plan, int at, BoundRule rule) {
    DataType type = plan.output().apply(at).dataType();
    if (!type.equals(plan.output().apply(at + 1).dataType())) return null;
    ColumnBounds out = new ColumnBounds(type);
    for (InternalRow row : rows) {
      String location = location(row.getUTF8String(0).toString());
      Long deleted = number(row, 1);
      Long live = number(row, 2);
      if (live != null && deleted != null) live -= deleted;
      BoundRule.Range bounds = rule.widen(value(row, at, type), value(row, at + 1, type));
      out.add(location, bounds, live, number(row, at + 2));
    }
    return out;
  }

  private static Long number(InternalRow row, int i) {
    return row.isNullAt(i) ? null : row.getLong(i);
  }

  /** Returns a value that holds on to nothing of its row. */
  private static Object value(InternalRow row, int i, DataType type) {
    Object value = row.isNullAt(i) ? null : row.get(i, type);
    return value instanceof UTF8String text ? text.copy() : value;
  }

  /** Returns a path as Delta's statistics take it. */
  private static scala.collection.immutable.List<String> reverse(List<String> path) {
    List<String> out = new ArrayList<>(path);
    Collections.reverse(out);
    return ScalaInterop.asScala(out);
  }

  @Override public String identity(List<String> path) {
    List<StructField> fields = fields(path);
    if (fields == null) return null;
    if (metadata.columnMappingMode().name().equals("id")) {
      StructField last = fields.get(fields.size() - 1);
      return last.metadata().contains(COLUMN_ID) ? "#" + last.metadata().getLong(COLUMN_ID) : null;
    }
    return MessageWriter.joinPath(fields.stream().map(DeltaSource::physicalName).toList());
  }

  @Override public ColumnRef describe(List<String> path, DataType type) {
    String identity = identity(path);
    if (identity == null) return null;
    return ColumnRef.of(identity, fields(path).stream().map(StructField::name).toList(), type);
  }

  /** Returns the fields from the table down to the column; null if one is missing. */
  private List<StructField> fields(List<String> path) {
    List<StructField> fields = new ArrayList<>();
    DataType within = metadata.schema();
    for (String name : path) {
      StructField field = find(within, name);
      if (field == null) return null;
      fields.add(field);
      within = field.dataType();
    }
    return fields;
  }

  private static StructField find(DataType within, String name) {
    if (!(within instanceof StructType struct)) return null;
    for (StructField field : struct.fields()) {
      if (field.name().equals(name)) return field;
    }
    return null;
  }

  private static String physicalName(StructField field) {
    return field.metadata().contains(PHYSICAL_NAME)
        ? field.metadata().getString(PHYSICAL_NAME)
        : field.name();
  }
}
