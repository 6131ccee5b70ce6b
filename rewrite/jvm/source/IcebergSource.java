package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.ScanTask;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.TableProperties;
import org.apache.iceberg.TableScan;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.spark.SparkSchemaUtil;
import org.apache.iceberg.types.Types;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.DataType;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.predicate.ColumnResolver;
import rewrite.jvm.predicate.KeyValues;

/**
 * A read of an Iceberg table. Loaded only where Iceberg is.
 *
 * <p>Metadata tables, changes between snapshots, and the scans of maintenance are other tables or
 * other classes, and so is the target of commands that replace files: what it reads they replace.
 * The target of commands that write positions, and the subquery that finds which files to replace,
 * are known by `_file` among their columns. Rows that meet the condition are all they look for.
 */
public final class IcebergSource implements ConnectorSource, ColumnResolver {
  private final Scan scan;
  private final IcebergReflection members;
  private final BaseTable table;
  private final Schema schema;
  private final boolean isCopy;
  /** The micro-batch of a stream; null: what the scan plans. */
  private final List<InputPartition> batch;

  private IcebergSource(
      Scan scan, IcebergReflection members, BaseTable table, Schema schema, boolean isCopy,
      List<InputPartition> batch) {
    this.scan = scan;
    this.members = members;
    this.table = table;
    this.schema = schema;
    this.isCopy = isCopy;
    this.batch = batch;
  }

  /** Returns the scan; null where it is not that of a read whose files may be pruned. */
  public static IcebergSource of(Scan scan, scala.collection.Iterable<?> output) {
    return !SkippingConf.isDmlEnabled() && isOfCommand(output) ? null : open(scan, null);
  }

  /** Returns the micro-batch of a stream, which has a scan of the table, too; null as above. */
  static IcebergSource ofBatch(Scan scan, List<InputPartition> batch) {
    return open(scan, batch);
  }

  private static IcebergSource open(Scan scan, List<InputPartition> batch) {
    try {
      IcebergReflection members = IcebergReflection.of(scan);
      if (members == null || !(members.table(scan) instanceof BaseTable table)) return null;
      return new IcebergSource(scan, members, table, members.projection(scan), false, batch);
    } catch (Throwable changed) {
      Failures.passOn(changed);
      return null;
    }
  }

  /** Whether a scan leaves out rows, other than those without a value. */
  public static boolean hasConditions(Scan scan) {
    IcebergReflection members = IcebergReflection.of(scan);
    return members != null
        && members.filters(scan).stream()
            .map(Expression::op)
            .anyMatch(op -> op != Expression.Operation.NOT_NULL && op != Expression.Operation.TRUE);
  }

  /** Whether it may be a command's scan; a query that selects `_file` counts as one. */
  private static boolean isOfCommand(scala.collection.Iterable<?> output) {
    return ScalaInterop.asJava(output).stream()
        .anyMatch(column -> column instanceof Attribute known && known.name().equals("_file"));
  }

  @Override public String table() {
    String root = table.location();
    while (root.endsWith("/") && !root.endsWith("://")) root = root.substring(0, root.length() - 1);
    String uuid = table.operations().current().uuid();
    return "iceberg\n" + (uuid == null ? "" : uuid) + "\n" + root;
  }

  /** Iceberg fails on such a file. */
  @Override public boolean passesOverFiles() {
    return false;
  }

  @Override public ColumnResolver columns() {
    return this;
  }

  @Override public int files() {
    try {
      return tasks().size();
    } catch (Throwable failure) {
      Failures.passOn(failure);
      return Integer.MAX_VALUE;
    }
  }

  /** Not Iceberg's estimate, which is of rows in memory, and of some columns. */
  @Override public long bytes() {
    long sum = 0;
    try {
      for (ScanTask task : tasks()) {
        sum += IcebergTasks.file(task).fileSizeInBytes();
      }
    } catch (Throwable failure) {
      Failures.passOn(failure); // then no benefit is known
    }
    return sum;
  }

  /** Only one that partitions all files without a transform: Iceberg drops whole buckets and days,
      where an index knows more. */
  @Override public boolean isPartition(List<String> path) {
    Types.NestedField field = field(path);
    return field != null
        && table.specs().values().stream().allMatch(spec -> isIdentity(spec, field.fieldId()));
  }

  private static boolean isIdentity(PartitionSpec spec, int id) {
    return spec.fields().stream()
        .anyMatch(part -> part.sourceId() == id && part.transform().isIdentity());
  }

  /** Returns the files that are read. */
  private List<ScanTask> tasks() throws ReflectiveOperationException {
    return batch == null ? members.tasks(scan) : IcebergTasks.of(batch);
  }

  /** A micro-batch has files of several snapshots. */
  @Override public String version() throws Exception {
    if (batch != null) return null;
    Long id = members.snapshotId(scan);
    return id == null ? null : id.toString();
  }

  @Override public boolean isPartitioned(List<String> path) {
    Types.NestedField field = field(path);
    return field != null
        && table.specs().values().stream()
            .anyMatch(spec -> !spec.getFieldsBySourceId(field.fieldId()).isEmpty());
  }

  @Override public Set<String> withoutPartition(List<String> path, KeyValues values)
      throws Exception {
    return IcebergStatistics.withoutPartition(
        tasks(), field(path), values, members.caseSensitive(scan));
  }

  @Override public ColumnBounds partitionValues(List<String> path) throws Exception {
    Types.NestedField field = field(path);
    return field == null
        ? null
        : IcebergStatistics.partitionValues(tasks(), field);
  }

  /** The manifests' files tell which columns really have some. */
  @Override public boolean hasStatistics(List<String> path) {
    Types.NestedField field = field(path);
    return batch == null && field != null && field.type().isPrimitiveType() && rule(field).proves();
  }

  private BoundRule rule(Types.NestedField field) {
    boolean isMapped = table.properties().containsKey(TableProperties.DEFAULT_NAME_MAPPING);
    DataType type = SparkSchemaUtil.convert(field.type());
    return BoundRule.of(BoundRule.ICEBERG, type, isMapped ? BoundRule.MAPPED : null);
  }

  @Override public List<ColumnBounds> bounds(List<List<String>> paths) throws Exception {
    List<Types.NestedField> fields = paths.stream().map(this::field).toList();
    List<BoundRule> rules = fields.stream().map(this::rule).toList();
    TableScan all = table.newScan().useSnapshot(members.snapshotId(scan));
    return IcebergStatistics.bounds(all, fields, rules);
  }

  @Override public String identity(List<String> path) {
    Types.NestedField field = field(path);
    return field == null ? null : IcebergIdentity.of(table, field.fieldId());
  }

  private Types.NestedField field(List<String> path) {
    Types.NestedField field = null;
    Types.StructType within = schema.asStruct();
    for (String name : path) {
      field = within == null ? null : within.field(name);
      if (field == null) return null;
      within = field.type().isStructType() ? field.type().asStructType() : null;
    }
    return field;
  }

  @Override public Scan scan() {
    return scan;
  }

  @Override public String name() {
    return table.name();
  }

  @Override public ConnectorSource copy() {
    if (!members.copies() || batch != null) return null;
    try {
      return new IcebergSource((Scan) members.copy(scan), members, table, schema, true, null);
    } catch (Throwable failure) {
      Failures.passOn(failure);
      IcebergReflection.giveUpCopies(scan.getClass());
      return null;
    }
  }

  @Override public List<String> locations() throws Exception {
    return tasks().stream().map(task -> IcebergTasks.file(task).location()).toList();
  }

  @Override public Set<String> findPrunable(FileCounter counter) throws Exception {
    Set<String> out = new HashSet<>();
    for (ScanTask task : tasks()) {
      DataFile file = IcebergTasks.file(task);
      // Not a normalized location: one table may have several spellings of one place.
      int ordinal = counter.ordinal(
          file.location(), file.fileSizeInBytes(), String.valueOf(file.recordCount()));
      if (file.format() != FileFormat.PARQUET) counter.foreign(file.format().name());
      if (counter.drops(ordinal, file.location(), file.fileSizeInBytes())) out.add(file.location());
    }
    return out;
  }

  @Override public InputPartition[] without(
      Set<String> locations, List<? extends KeyValues> keys, boolean grouped) throws Exception {
    if (batch != null) return IcebergTasks.without(locations, IcebergTasks.copy(batch));
    if (grouped || !isCopy) {
      return IcebergTasks.without(locations, scan.toBatch().planInputPartitions());
    }
    List<ScanTask> tasks = tasks();
    // Iceberg cannot plan other tasks for a table that has no snapshot yet.
    if (!tasks.isEmpty()) {
      members.resetTasks(scan, IcebergTasks.without(locations, tasks, rows(keys)));
    }
    return scan.toBatch().planInputPartitions();
  }

  @Override public String narrowing(List<? extends KeyValues> keys) {
    return String.valueOf(rows(keys));
  }

  private Map<Integer, Expression> rows(List<? extends KeyValues> keys) {
    try {
      return IcebergTasks.rows(keys, schema, members.caseSensitive(scan));
    } catch (Exception changed) {
      return Map.of();
    }
  }

  /** The files of the snapshot, and those that partitions and bounds leave. */
  @Override public List<SizeStep> sizes() throws Exception {
    List<SizeStep> steps = new ArrayList<>();
    Long id = batch == null ? members.snapshotId(scan) : null;
    Snapshot snapshot = id == null ? null : table.snapshot(id);
    Long all = snapshot == null ? null : total(snapshot, "data-files");
    // Until Spark 4.0 the snapshot may be a later one: that of the command which reads here.
    if (all != null && all >= files()) {
      // The total of bytes includes files of deletes.
      Long deletes = total(snapshot, "delete-files");
      Long bytes = deletes != null && deletes == 0 ? total(snapshot, "files-size") : null;
      SizeStep.add(steps, "table", all, bytes);
    }
    SizeStep.add(steps, "planning", files(), bytes());
    return steps;
  }

  private static Long total(Snapshot snapshot, String what) {
    String found = snapshot.summary().get("total-" + what);
    return found == null ? null : Long.valueOf(found);
  }
}
