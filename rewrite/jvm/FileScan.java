package rewrite.jvm;

import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;

/** A scan of files that Spark itself lists and reads. */
public abstract class FileScan implements IndexedScan, ColumnIdentities {
  protected final HadoopFsRelation relation;

  protected FileScan(HadoopFsRelation relation) {
    this.relation = relation;
  }

  /** The read behind a relation, or null where it is not one that may be pruned. */
  public static FileScan of(HadoopFsRelation relation, Skipping skipping) {
    // By name first: DeltaScan does not load in a session without Delta.
    return relation.location().getClass().getSimpleName().equals("PreparedDeltaFileIndex")
        ? (FileScan) DeltaScan.of(relation)
        : (FileScan) ParquetScan.of(relation, skipping);
  }

  public ColumnIdentities columns() {
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
