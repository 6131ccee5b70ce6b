package rewrite.jvm.source;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import rewrite.jvm.predicate.UnmatchedClauses;

/**
 * A table format whose scans may leave out files.
 *
 * <p>To add one, implement this interface in a public class with a public constructor without
 * arguments, and name the class in the jar's
 * META-INF/services/rewrite.jvm.source.TableFormat. Give the jar to Spark together with that of
 * file skipping (`--jars`), or to `rewrite.enable(spark, jars=[...])`. Neither the jar nor its
 * objects are sent to executors.
 *
 * <p>A format sees each scan of a query, also those of other formats, in a session that may lack its
 * own classes. So the constructor and the methods `isFormat` must not load them. The other methods
 * are called only with what `isFormat` has accepted. A format has files that Spark lists and reads
 * (FileIndex, FileSource), or a connector (Scan, ConnectorSource). If a method throws, the query
 * reads all files.
 */
public interface TableFormat {
  /** Whether a relation with this file index is a table of the format. */
  default boolean isFormat(FileIndex index) {
    return false;
  }

  /** Whether this is the connector's scan. */
  default boolean isFormat(Scan scan) {
    return false;
  }

  /** Whether this is a partition that the connector's scan has planned. */
  default boolean isFormat(InputPartition partition) {
    return false;
  }

  /** Whether this is a connector's stream whose micro-batches may be pruned. */
  default boolean isFormat(MicroBatchStream stream) {
    return false;
  }

  /** The table behind a relation; null if this read must see all files. */
  default FileSource open(HadoopFsRelation relation) {
    return null;
  }

  /** The table behind a scan of some columns; null if this read must see all files. */
  default ConnectorSource open(Scan scan, scala.collection.Iterable<?> output) {
    return null;
  }

  /** The table behind a micro-batch that a stream has planned, with the scan of its table; null if
      this read must see all files. */
  default ConnectorSource open(Scan scan, List<InputPartition> batch) {
    return null;
  }

  /** Whether an index gives the same rows whenever it is read. */
  default boolean isSnapshot(FileIndex index) {
    return false;
  }

  /** Whether a scan gives the same rows whenever it is read. */
  default boolean isSnapshot(Scan scan) {
    return false;
  }

  /** Whether a command looks in these files for the rows that it changes. */
  default boolean isOfCommand(FileIndex index) {
    return false;
  }

  /** Whether these are the files of a stream's micro-batch, and may be pruned. */
  default boolean isOfStream(FileIndex index) {
    return false;
  }

  /** The clauses of a MERGE that change rows of its table without a match; null for other plans. */
  default UnmatchedClauses unmatchedClauses(LogicalPlan command) {
    return null;
  }

  /** Whether a scan has taken conditions into itself that leave out rows. */
  default boolean hasConditions(Scan scan) {
    return false;
  }

  /** Adds the sizes of the files in a partition, by location. */
  default void addFiles(InputPartition partition, Map<String, Long> files) throws Exception {}

  /** Adds the steps in which the format's own planning has left out files; see SizeStep. */
  default void addSizes(FileIndex index, List<SizeStep> steps) {}
}
