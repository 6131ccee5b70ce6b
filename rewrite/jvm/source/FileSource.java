package rewrite.jvm.source;

import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.catalyst.FileSourceOptions;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.ColumnResolver;
import rewrite.jvm.predicate.KeyValues;

/** A scan of files that Spark itself lists and reads. */
public abstract class FileSource implements ScanSource, ColumnResolver {
  protected final HadoopFsRelation relation;

  protected FileSource(HadoopFsRelation relation) {
    this.relation = relation;
  }

  public ColumnResolver columns() {
    return this;
  }

  public long bytes() {
    return relation.sizeInBytes();
  }

  public boolean isPartition(List path) {
    return relation.partitionSchema().getFieldIndex((String) path.get(0)).isDefined();
  }

  public boolean isPartitioned(List path) {
    return path.size() == 1 && isPartition(path);
  }

  public boolean passesOverFiles() {
    FileSourceOptions options = new FileSourceOptions(relation.options());
    return options.ignoreMissingFiles() || options.ignoreCorruptFiles();
  }

  public Set withoutPartition(List path, KeyValues values) {
    StructType partition = relation.location().partitionSchema();
    int at = ((Integer) partition.getFieldIndex((String) path.get(0)).get()).intValue();
    DataType own = partition.fields()[at].dataType();
    ColumnBounds bounds = new ColumnBounds(own);
    List directories = directories();
    for (int i = 0; i < directories.size(); i++) {
      PartitionDirectory directory = (PartitionDirectory) directories.get(i);
      Object value = directory.values().get(at, own);
      List files = ScalaInterop.list(directory.files());
      for (int j = 0; j < files.size(); j++) {
        String location = ((FileStatusWithMetadata) files.get(j)).getPath().toString();
        if (value == null) {
          bounds.addNull(location);
        } else {
          bounds.add(location, value);
        }
      }
    }
    return bounds.without(ColumnBounds.test(values));
  }

  public Set findPrunable(FileCounter tally) {
    Set out = new HashSet();
    List directories = directories();
    for (int i = 0; i < directories.size(); i++) {
      PartitionDirectory directory = (PartitionDirectory) directories.get(i);
      List files = ScalaInterop.list(directory.files());
      for (int j = 0; j < files.size(); j++) {
        FileStatusWithMetadata file = (FileStatusWithMetadata) files.get(j);
        String location = file.getPath().toString();
        String mark = mark(directory.values(), file.fileStatus());
        int ordinal = tally.ordinal(location, file.getLen(), mark);
        if (tally.drops(ordinal, location, file.getLen())) out.add(location);
      }
    }
    return out;
  }

  /** The files that it reads, by partition; none where that is not known yet. */
  protected abstract List directories();

  /** Whether one file has to stay even if none is of use. */
  public boolean keepsOne() {
    return false;
  }

  /** The locations of files that are known to have no rows. */
  public Set empty() {
    return new HashSet();
  }

  /** What identifies a file beside path and size; "" if nothing does. */
  public abstract String mark(InternalRow partition, FileStatus file);
}
