package rewrite.jvm.source;

import java.util.List;
import java.util.Set;
import rewrite.jvm.predicate.ColumnResolver;
import rewrite.jvm.predicate.KeyValues;

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

  /** The locations of the files that are pruned; the tally counts each file. None where its
      files are not known yet. */
  Set findPrunable(FileCounter tally) throws Exception;

  /** Whether the column at a path of names is one that Spark prunes partitions by itself. */
  boolean isPartition(List path);

  /** The version of the table that is read; null where it is not known. */
  String version() throws Exception;

  /** Whether the partition of a file may tell what the column at a path of names has there. */
  boolean isPartitioned(List path);

  /** The locations of the files whose partition proves that the column at a path holds none of
      some values. */
  Set withoutPartition(List path, KeyValues values) throws Exception;

  /** Whether the table may have statistics of the column at a path of names. */
  boolean hasStatistics(List path);

  /** Whether Spark is to pass over files that are missing or damaged: then others have to do for
      their rows. */
  boolean passesOverFiles();

  /** Those of some columns, of all its files at this version: ColumnBounds, or null where there are
      none, in the order of the paths. Reads the table's log once. */
  List bounds(List paths) throws Exception;
}
