package rewrite.jvm.source;

import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import rewrite.jvm.predicate.ColumnResolver;

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

  /** What identifies a file beside path and size; "" if nothing does. */
  public abstract String mark(InternalRow partition, FileStatus file);
}
