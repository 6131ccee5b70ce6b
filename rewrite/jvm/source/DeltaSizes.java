package rewrite.jvm.source;

import java.util.List;
import org.apache.spark.sql.delta.stats.DataSize;
import org.apache.spark.sql.delta.stats.PreparedDeltaFileIndex;
import org.apache.spark.sql.execution.datasources.FileIndex;

/** What Delta's planning left of a table. Loaded only where Delta is. */
public final class DeltaSizes {
  private DeltaSizes() {}

  /** Adds the steps of a read: all files, those of the partitions, those that statistics leave. */
  public static void add(FileIndex index, List steps) {
    org.apache.spark.sql.delta.stats.DeltaScan scan =
        ((PreparedDeltaFileIndex) index).preparedScan();
    step(steps, "table", scan.total());
    step(steps, "partitions", scan.partition());
    step(steps, "statistics", scan.scanned());
  }

  private static void step(List steps, String name, DataSize size) {
    if (size == null) return;
    SizeSteps.add(steps, name, value(size.files()), value(size.bytesCompressed()));
  }

  private static Object value(scala.Option option) {
    return option.isDefined() ? option.get() : null;
  }
}
