package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.datasources.CatalogFileIndex;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
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
 * What a read of plain Parquet files tells about its table, which is known by its folder.
 *
 * <p>An index of a folder speaks of files, whoever reads them: a file below the folder that is the
 * same by path, size, time and values of partition columns, in columns of the same name and type.
 */
public final class ParquetSource extends FileSource implements ReplaceableFiles {
  private static final String FORMAT = "parquet\n\n";

  private final IndexClient client;
  private final String table;
  private volatile Object[] last; // partition values, the same for all files of a folder, as JSON

  private ParquetSource(HadoopFsRelation relation, IndexClient client, String table) {
    super(relation);
    this.client = client;
    this.table = table;
  }

  /** The scan, or null if it is none of Spark's own reads of Parquet files. */
  public static ParquetSource of(HadoopFsRelation relation, IndexClient client) {
    Class listed = relation.location().getClass();
    if (listed != InMemoryFileIndex.class && listed != CatalogFileIndex.class) return null;
    if (relation.fileFormat().getClass() != ParquetFileFormat.class) return null;
    // Buckets are read together, and may be listed while a query is planned.
    if (relation.bucketSpec().isDefined()) return null;
    // Columns with a number are found by it, and facts are kept by name.
    if (ParquetUtils.hasFieldIds(relation.dataSchema())) return null;
    List roots = ScalaInterop.list(relation.location().rootPaths());
    return new ParquetSource(relation, client, table(roots, client));
  }

  /** The nearest folder with an index that holds all roots: partitions may be pruned already. */
  private static String table(List roots, IndexClient client) {
    if (roots.isEmpty()) return FORMAT;
    for (Path path = (Path) roots.get(0); path != null; path = path.getParent()) {
      String table = FORMAT + path;
      if (client.hasIndex(table) && areBelow(path, roots)) return table;
    }
    return FORMAT + roots.get(0);
  }

  private static boolean areBelow(Path folder, List roots) {
    String prefix = folder.toString().endsWith("/") ? folder.toString() : folder + "/";
    for (int i = 0; i < roots.size(); i++) {
      if (!(roots.get(i) + "/").startsWith(prefix)) return false;
    }
    return true;
  }

  public String table() {
    return table;
  }

  /** Catalogs do not say before partitions are listed, which is not for us to do. */
  public int files() {
    FileIndex location = relation.location();
    return location instanceof InMemoryFileIndex
        ? ((InMemoryFileIndex) location).allFiles().size()
        : Integer.MAX_VALUE;
  }

  /** There is no log. */
  public String version() {
    return null;
  }

  /** Catalogs list their partitions when the files are listed. */
  protected List directories() {
    FileIndex location = relation.location();
    List none = new ArrayList();
    return location instanceof InMemoryFileIndex
        ? ScalaInterop.list(location.listFiles(ScalaInterop.seq(none), ScalaInterop.seq(none)))
        : none;
  }

  public boolean isPartitioned(List path) {
    return super.isPartitioned(path) && relation.location() instanceof InMemoryFileIndex;
  }

  public boolean hasStatistics(List path) {
    return false;
  }

  public List bounds(List paths) {
    return Collections.nCopies(paths.size(), null);
  }

  public String mark(InternalRow partition, FileStatus file) {
    Object[] known = last;
    if (known == null || known[0] != partition) {
      known = new Object[] {partition, json(partition)};
      last = known;
    }
    return file.getModificationTime() + " " + known[1];
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
        out.append(String.format("\\u%04x", new Object[] {Integer.valueOf(c)}));
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
            new Literal(value, type), StringType$.MODULE$, new scala.Some("UTC"),
            org.apache.spark.sql.catalyst.expressions.EvalMode$.MODULE$.LEGACY())
        .eval(null);
    return text.toString();
  }

  public FolderListing now(Collection folders) {
    if (folders.isEmpty()) return FolderListing.NONE;
    SparkSession session = relation.sparkSession();
    return FolderListing.list(
        session.sessionState().newHadoopConfWithOptions(relation.options()), folders, client);
  }

  public String identity(List path) {
    StructType within = relation.schema();
    for (int i = 0; i < path.size(); i++) {
      String name = (String) path.get(i);
      if (within == null || within.getFieldIndex(name).isEmpty()) return null;
      DataType type = within.apply(name).dataType();
      within = type instanceof StructType ? (StructType) type : null;
    }
    return (isPartition(path) ? "/" : "") + MessageWriter.dotted(path);
  }

  public Map describe(List path, DataType type) {
    String identity = identity(path);
    return identity == null ? null : MessageWriter.column(identity, path, type);
  }
}
