package rewrite.jvm.source;

import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.function.Supplier;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EvalMode$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.execution.datasources.CatalogFileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.parquet.ParquetUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StringType$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * A read of plain Parquet files, whose table is its folder.
 *
 * <p>An index of a folder covers a file below it, whichever read lists it, if path, size, time and
 * partition values are the same; columns are the same by name and type.
 */
public final class ParquetSource extends FileSource {
  private static final String FORMAT = "parquet\n\n";

  private final IndexClient client;
  private final String table;
  private volatile Partition last; // the same for all files of a folder

  /** The values of a partition, and their JSON. */
  private record Partition(InternalRow values, String json) {}

  private ParquetSource(HadoopFsRelation relation, IndexClient client, String table) {
    super(relation);
    this.client = client;
    this.table = table;
  }

  /** Returns the scan; null for anything but Spark's own reads of Parquet files. */
  public static ParquetSource of(HadoopFsRelation relation, IndexClient client) {
    Class<?> listed = relation.location().getClass();
    if (listed != InMemoryFileIndex.class && listed != CatalogFileIndex.class) return null;
    if (relation.fileFormat().getClass() != ParquetFileFormat.class) return null;
    // Buckets are read together, and may be listed while a query is planned.
    if (relation.bucketSpec().isDefined()) return null;
    // Columns with a number are found by it, and an index names columns.
    if (ParquetUtils.hasFieldIds(relation.dataSchema())) return null;
    List<Path> roots = ScalaInterop.asJava(relation.location().rootPaths());
    return new ParquetSource(relation, client, table(roots, client));
  }

  /** Returns the nearest indexed folder above all roots: partitions may be pruned already. */
  private static String table(List<Path> roots, IndexClient client) {
    if (roots.isEmpty()) return FORMAT;
    for (Path path = roots.get(0); path != null; path = path.getParent()) {
      String table = FORMAT + path;
      if (client.hasIndex(table) && areBelow(path, roots)) return table;
    }
    return FORMAT + roots.get(0);
  }

  private static boolean areBelow(Path folder, List<Path> roots) {
    String prefix = folder.toString().endsWith("/") ? folder.toString() : folder + "/";
    return roots.stream().allMatch(root -> (root + "/").startsWith(prefix));
  }

  @Override public String table() {
    return table;
  }

  /** Catalogs only tell when partitions are listed. */
  @Override public int files() {
    return relation.location() instanceof InMemoryFileIndex index
        ? index.allFiles().size()
        : Integer.MAX_VALUE;
  }

  /** There is no log. */
  @Override public String version() {
    return null;
  }

  /** Catalogs list their partitions when the files are listed. */
  @Override protected List<PartitionDirectory> directories() {
    if (!(relation.location() instanceof InMemoryFileIndex index)) return List.of();
    scala.collection.immutable.List<Expression> none = ScalaInterop.asScala(List.of());
    return ScalaInterop.asJava(index.listFiles(none, none));
  }

  @Override public boolean isPartitioned(List<String> path) {
    return super.isPartitioned(path) && relation.location() instanceof InMemoryFileIndex;
  }

  @Override public boolean hasStatistics(List<String> path) {
    return false;
  }

  @Override public List<ColumnBounds> bounds(List<List<String>> paths) {
    return Collections.nCopies(paths.size(), null);
  }

  @Override public String mark(InternalRow partition, FileStatus file) {
    Partition known = last;
    if (known == null || known.values != partition) {
      known = new Partition(partition, json(partition));
      last = known;
    }
    return file.getModificationTime() + " " + known.json;
  }

  /** As Python's json.dumps writes it: marks are compared as texts. */
  private String json(InternalRow partition) {
    StringBuilder out = new StringBuilder("{");
    StructField[] fields = relation.location().partitionSchema().fields();
    for (int i = 0; i < fields.length; i++) {
      String value = text(partition, i, fields[i].dataType());
      out.append(i == 0 ? "" : ", ")
          .append(quote("/" + MessageWriter.escape(fields[i].name())))
          .append(": ")
          .append(value == null ? "null" : quote(value));
    }
    return out.append("}").toString();
  }

  /** A JSON string, in ASCII. */
  private static String quote(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < 32 || c >= 127) {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    return out.append('"').toString();
  }

  /** A partition value as skipping/tables/parquet/spark.py writes it. */
  private static String text(InternalRow values, int i, DataType type) {
    if (values.isNullAt(i)) return null;
    Object value = values.get(i, type);
    if (type instanceof TimestampType) return value.toString();
    Object text = new Cast(
            new Literal(value, type), StringType$.MODULE$, scala.Option.apply("UTC"),
            EvalMode$.MODULE$.LEGACY())
        .eval(null);
    return text.toString();
  }

  @Override public boolean mayReplaceFiles() {
    return true;
  }

  @Override public FolderListing listNow(Supplier<Collection<Path>> folders) {
    Collection<Path> paths = folders.get();
    if (paths.isEmpty()) return FolderListing.NONE;
    return FolderListing.list(
        relation.sparkSession().sessionState().newHadoopConfWithOptions(relation.options()), paths,
        client);
  }

  @Override public String identity(List<String> path) {
    DataType within = relation.schema();
    for (String name : path) {
      if (!(within instanceof StructType struct)) return null;
      if (struct.getFieldIndex(name).isEmpty()) return null;
      within = struct.apply(name).dataType();
    }
    return (isPartition(path) ? "/" : "") + MessageWriter.joinPath(path);
  }
}
