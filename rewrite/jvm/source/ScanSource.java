package rewrite.jvm.source;

import java.util.List;
import rewrite.jvm.predicate.ColumnResolver;

/** A scan of a table that may have an index, whatever its format. */
public interface ScanSource {
  /** The table's identity: format, id and root location, one a line. */
  String table();

  /** Its columns, at the version that the scan reads. */
  ColumnResolver columns();

  /** How many files the table format would read by itself; more where it cannot tell yet. */
  int files();

  /** How many bytes its files have. */
  long bytes();

  /** Whether the column at a path of names is one that Spark prunes partitions by itself. */
  boolean isPartition(List path);
}
