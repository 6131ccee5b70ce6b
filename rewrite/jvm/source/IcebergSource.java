package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.iceberg.BaseTable;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.PartitionSpec;
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
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.predicate.ColumnResolver;
import rewrite.jvm.predicate.KeyValues;

/**
 * What a read of an Iceberg table tells about the table. Loaded only where Iceberg is.
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

  private IcebergSource(
      Scan scan, IcebergReflection members, BaseTable table, Schema schema, boolean isCopy) {
    this.scan = scan;
    this.members = members;
    this.table = table;
    this.schema = schema;
    this.isCopy = isCopy;
  }

  /** The scan, or null where it is not that of a read whose files may be left out. */
  public static IcebergSource of(Scan scan, scala.collection.Iterable output) {
    if (!SkippingConf.servesCommands() && isOfCommand(output)) return null;
    try {
      IcebergReflection members = IcebergReflection.of(scan);
      Object table = members == null ? null : members.table(scan);
      if (!(table instanceof BaseTable)) return null;
      Schema schema = (Schema) members.projection(scan);
      return new IcebergSource(scan, members, (BaseTable) table, schema, false);
    } catch (Throwable changed) {
      Failures.passOn(changed);
      return null;
    }
  }

  /** Whether a scan leaves out rows, other than those without a value. */
  public static boolean hasConditions(Scan scan) {
    IcebergReflection members = IcebergReflection.of(scan);
    List filters = members == null ? new ArrayList() : members.filters(scan);
    for (int i = 0; i < filters.size(); i++) {
      Expression.Operation what = ((Expression) filters.get(i)).op();
      if (what != Expression.Operation.NOT_NULL && what != Expression.Operation.TRUE) {
        return true;
      }
    }
    return false;
  }

  /** Whether it may be: whoever asks for `_file` by himself is taken for one. */
  private static boolean isOfCommand(scala.collection.Iterable output) {
    List columns = ScalaInterop.list(output);
    for (int i = 0; i < columns.size(); i++) {
      if (((Attribute) columns.get(i)).name().equals("_file")) return true;
    }
    return false;
  }

  public String table() {
    String root = table.location();
    while (root.endsWith("/") && !root.endsWith("://")) root = root.substring(0, root.length() - 1);
    String uuid = table.operations().current().uuid();
    return "iceberg\n" + (uuid == null ? "" : uuid) + "\n" + root;
  }

  /** Iceberg fails on such a file. */
  public boolean passesOverFiles() {
    return false;
  }

  public ColumnResolver columns() {
    return this;
  }

  public int files() {
    try {
      return members.tasks(scan).size();
    } catch (Throwable failure) {
      Failures.passOn(failure);
      return Integer.MAX_VALUE;
    }
  }

  /** Not Iceberg's estimate, which is of rows in memory, and of some columns. */
  public long bytes() {
    long sum = 0;
    try {
      List tasks = members.tasks(scan);
      for (int i = 0; i < tasks.size(); i++) {
        sum += IcebergTasks.file(tasks.get(i)).fileSizeInBytes();
      }
    } catch (Throwable failure) {
      Failures.passOn(failure); // else nothing is known to be saved
    }
    return sum;
  }

  /** Only one that all files are partitioned by as it stands: Iceberg drops whole buckets and
      days, where an index knows more. */
  public boolean isPartition(List path) {
    Types.NestedField field = field(path);
    if (field == null) return false;
    Iterator specs = table.specs().values().iterator();
    while (specs.hasNext()) {
      if (!isIdentity((PartitionSpec) specs.next(), field.fieldId())) return false;
    }
    return true;
  }

  private static boolean isIdentity(PartitionSpec spec, int id) {
    for (int i = 0; i < spec.fields().size(); i++) {
      PartitionField field = spec.fields().get(i);
      if (field.sourceId() == id && field.transform().isIdentity()) return true;
    }
    return false;
  }

  public String version() throws Exception {
    Long id = members.snapshotId(scan);
    return id == null ? null : id.toString();
  }

  public boolean isPartitioned(List path) {
    Types.NestedField field = field(path);
    if (field == null) return false;
    Iterator specs = table.specs().values().iterator();
    while (specs.hasNext()) {
      PartitionSpec spec = (PartitionSpec) specs.next();
      if (!spec.getFieldsBySourceId(field.fieldId()).isEmpty()) return true;
    }
    return false;
  }

  public Set withoutPartition(List path, KeyValues values) throws Exception {
    return IcebergStatistics.withoutPartition(
        members.tasks(scan), field(path), values, members.caseSensitive(scan));
  }

  /** Which columns have some is in the files of manifests. */
  public boolean hasStatistics(List path) {
    Types.NestedField field = field(path);
    return field != null && field.type().isPrimitiveType() && rule(field).proves();
  }

  private BoundRule rule(Types.NestedField field) {
    boolean isMapped = table.properties().containsKey(TableProperties.DEFAULT_NAME_MAPPING);
    DataType type = SparkSchemaUtil.convert(field.type());
    return BoundRule.of(BoundRule.ICEBERG, type, isMapped ? BoundRule.MAPPED : null);
  }

  public List bounds(List paths) throws Exception {
    List fields = new ArrayList();
    List rules = new ArrayList();
    for (int i = 0; i < paths.size(); i++) {
      fields.add(field((List) paths.get(i)));
      rules.add(rule((Types.NestedField) fields.get(i)));
    }
    TableScan all = table.newScan().useSnapshot(members.snapshotId(scan).longValue());
    return IcebergStatistics.bounds(all, fields, rules);
  }

  public String identity(List path) {
    Types.NestedField field = field(path);
    return field == null ? null : IcebergIdentity.of(table, field.fieldId());
  }

  public Map describe(List path, DataType type) {
    String identity = identity(path);
    return identity == null ? null : MessageWriter.column(identity, path, type);
  }

  private Types.NestedField field(List path) {
    Types.NestedField field = null;
    Types.StructType within = schema.asStruct();
    for (int i = 0; i < path.size(); i++) {
      field = within == null ? null : within.field((String) path.get(i));
      if (field == null) return null;
      within = field.type().isStructType() ? field.type().asStructType() : null;
    }
    return field;
  }

  public Scan scan() {
    return scan;
  }

  public ConnectorSource copy() {
    if (!members.copies()) return null;
    try {
      return new IcebergSource((Scan) members.copy(scan), members, table, schema, true);
    } catch (Throwable failure) {
      Failures.passOn(failure);
      IcebergReflection.giveUpCopies(scan.getClass());
      return null;
    }
  }

  public List locations() throws Exception {
    List out = new ArrayList();
    List tasks = members.tasks(scan);
    for (int i = 0; i < tasks.size(); i++) {
      out.add(IcebergTasks.file(tasks.get(i)).location());
    }
    return out;
  }

  public Set findPrunable(FileCounter tally) throws Exception {
    Set out = new HashSet();
    List tasks = members.tasks(scan);
    for (int i = 0; i < tasks.size(); i++) {
      DataFile file = IcebergTasks.file(tasks.get(i));
      // The location as it stands: one table may have several spellings of one place.
      int ordinal = tally.ordinal(
          file.location(), file.fileSizeInBytes(), String.valueOf(file.recordCount()));
      if (file.format() != FileFormat.PARQUET) tally.foreign(file.format().name());
      if (tally.drops(ordinal, file.location(), file.fileSizeInBytes())) out.add(file.location());
    }
    return out;
  }

  public InputPartition[] without(Set locations, List keys, boolean grouped) throws Exception {
    if (grouped || !isCopy) {
      return IcebergTasks.without(locations, scan.toBatch().planInputPartitions());
    }
    List tasks = members.tasks(scan);
    // Iceberg cannot plan other tasks for a table that has no snapshot yet.
    if (!tasks.isEmpty()) {
      members.resetTasks(scan, IcebergTasks.without(locations, tasks, rows(keys)));
    }
    return scan.toBatch().planInputPartitions();
  }

  public String narrowing(List keys) {
    return String.valueOf(rows(keys));
  }

  private Map rows(List keys) {
    try {
      return IcebergTasks.rows(keys, schema, members.caseSensitive(scan));
    } catch (Exception changed) {
      return Collections.EMPTY_MAP;
    }
  }

  /** The files of the snapshot, and those that partitions and bounds leave. */
  public List sizes() throws Exception {
    List steps = new ArrayList();
    Long id = members.snapshotId(scan);
    Snapshot snapshot = id == null ? null : table.snapshot(id.longValue());
    if (snapshot != null) {
      // Where there are files of deletes, the bytes are also theirs.
      boolean bare = Long.valueOf(0).equals(total(snapshot, "delete-files"));
      Object bytes = bare ? total(snapshot, "files-size") : null;
      SizeSteps.add(steps, "table", total(snapshot, "data-files"), bytes);
    }
    SizeSteps.add(steps, "planning", Integer.valueOf(files()), Long.valueOf(bytes()));
    return steps;
  }

  private static Object total(Snapshot snapshot, String what) {
    Object found = snapshot.summary().get("total-" + what);
    return found == null ? null : Long.valueOf((String) found);
  }

  /** Adds the files in a partition of a plan: of each location the bytes. */
  public static void addFiles(Object partition, Map files) throws Exception {
    IcebergTasks.addFiles(partition, files);
  }
}
