package rewrite.jvm.source;

import java.util.List;
import java.util.Set;
import rewrite.jvm.predicate.ColumnResolver;
import rewrite.jvm.predicate.KeyValues;

/** A scan of a table that may have an index, of any format. Columns are paths of names. */
public interface ScanSource {
  /** The table's identity: format, id and root location, one a line. */
  String table();

  /** Its columns, at the version that the scan reads. */
  ColumnResolver columns();

  /** How many files the table format alone would read; more where it cannot tell yet. */
  int files();

  long bytes();

  /** Returns the locations of the files that are pruned, and counts each file. Empty where its files
      are not known yet. */
  Set<String> findPrunable(FileCounter counter) throws Exception;

  /** Whether Spark itself prunes partitions by a column. */
  boolean isPartition(List<String> path);

  /** The version of the table that is read; null where it is not known. */
  String version() throws Exception;

  /** Whether a file at the same location may be another one by the time that Spark reads it. */
  default boolean mayReplaceFiles() {
    return false;
  }

  /** Whether the partition of a file may tell the value of a column there. */
  boolean isPartitioned(List<String> path);

  /** Returns the locations of the files that the table format alone would read. */
  List<String> locations() throws Exception;

  /** Returns the value of a column in each of these files, as its partition tells it; null if not
      all partitions do. */
  default ColumnBounds partitionValues(List<String> path) throws Exception {
    return null;
  }

  /** Returns the locations of the files whose partition proves that a column has none of some
      values. */
  Set<String> withoutPartition(List<String> path, KeyValues values) throws Exception;

  /** Whether the table may have statistics of a column. */
  boolean hasStatistics(List<String> path);

  /** Whether Spark ignores files that are missing or damaged: then others have to provide their
      rows. */
  boolean passesOverFiles();

  /** Returns the bounds of some columns in all files of this version, in the order of the paths;
      null where the table does not have them. Reads the table's log once. */
  List<ColumnBounds> bounds(List<List<String>> paths) throws Exception;
}
