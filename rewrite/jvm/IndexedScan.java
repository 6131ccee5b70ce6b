package rewrite.jvm;

import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.catalyst.InternalRow;

/** A scan of a table that may have an index, whatever its format. */
public interface IndexedScan {
  /** The table's identity: format, id and root location, one a line. */
  String table();

  /** Its columns, at the version that the scan reads. */
  ColumnIdentities columns();

  /** How many files the table format would read by itself; more where it cannot tell yet. */
  int files();

  /** What identifies a file beside path and size; "" if nothing does. */
  String mark(InternalRow partition, FileStatus file);
}
