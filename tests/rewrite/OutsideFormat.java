package outside;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.InMemoryFileIndex;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.source.FileSource;
import rewrite.jvm.source.TableFormat;

/** A table format outside the project: a folder of Parquet files without partitions. */
public final class OutsideFormat implements TableFormat {
  /** Replaces the file index in a frame of Parquet files by the format's. */
  public static HadoopFsRelation relation(Dataset<Row> frame) {
    LogicalRelation read = (LogicalRelation) frame.queryExecution().analyzed();
    HadoopFsRelation old = (HadoopFsRelation) read.relation();
    return old.copy(
        new Index((InMemoryFileIndex) old.location(), frame.sparkSession()),
        old.partitionSchema(), old.dataSchema(), old.bucketSpec(), old.fileFormat(),
        old.options(), old.sparkSession());
  }

  @Override
  public boolean isFormat(FileIndex index) {
    return index instanceof Index;
  }

  @Override
  public FileSource open(HadoopFsRelation relation) {
    return new Source(relation);
  }

  @Override
  public boolean isSnapshot(FileIndex index) {
    return true;
  }

  /** Another format, which fails for every table. */
  public static final class Failing implements TableFormat {
    @Override
    public boolean isFormat(FileIndex index) {
      throw new IllegalStateException("not today");
    }
  }

  /** The files of a table. */
  public static final class Index extends InMemoryFileIndex {
    Index(InMemoryFileIndex files, SparkSession session) {
      super(
          (org.apache.spark.sql.classic.SparkSession) session, files.rootPaths(),
          new scala.collection.immutable.HashMap<>(), scala.Option.empty(),
          org.apache.spark.sql.execution.datasources.NoopCache$.MODULE$, scala.Option.empty(),
          scala.Option.empty());
    }
  }

  /** The table behind a scan. */
  private static final class Source extends FileSource {
    Source(HadoopFsRelation relation) {
      super(relation);
    }

    @Override
    public String table() {
      return "parquet\n\n" + relation.location().rootPaths().apply(0);
    }

    @Override
    public int files() {
      return relation.location().inputFiles().length;
    }

    @Override
    protected List<PartitionDirectory> directories() {
      scala.collection.immutable.List<org.apache.spark.sql.catalyst.expressions.Expression> none =
          scala.collection.immutable.List$.MODULE$.empty();
      List<PartitionDirectory> out = new ArrayList<>();
      scala.collection.Iterator<PartitionDirectory> each =
          relation.location().listFiles(none, none).iterator();
      while (each.hasNext()) out.add(each.next());
      return out;
    }

    @Override
    public String mark(InternalRow partition, FileStatus file) {
      return file.getModificationTime() + " {}";
    }

    @Override
    public String version() {
      return null;
    }

    @Override
    public boolean hasStatistics(List path) {
      return false;
    }

    @Override
    public List bounds(List paths) {
      List<Object> out = new ArrayList<>();
      for (int i = 0; i < paths.size(); i++) out.add(null);
      return out;
    }

    @Override
    @SuppressWarnings("unchecked")
    public String identity(List path) {
      return MessageWriter.joinPath(path);
    }
  }
}
