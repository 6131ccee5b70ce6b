package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.List;
import java.util.ServiceLoader;
import java.util.function.Predicate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.FileIndex;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.predicate.UnmatchedClauses;

/** The table formats that ServiceLoader finds: those of this jar, and of others. */
public final class TableFormats {
  private static final TableFormat NONE = new TableFormat() {};
  private static volatile List<TableFormat> formats = new ArrayList<>();

  private TableFormats() {}

  /** Finds the formats in a class loader that knows this class. Throws ServiceConfigurationError
      for one that cannot be loaded. */
  public static void load(ClassLoader loader) {
    List<TableFormat> found = new ArrayList<>();
    for (TableFormat each : ServiceLoader.load(TableFormat.class, loader)) found.add(each);
    formats = found;
  }

  /** The format of a file index; one without tables if the index has another format. */
  static TableFormat of(FileIndex index) {
    return find(format -> format.isFormat(index));
  }

  /** The format of a connector's scan; as above. */
  static TableFormat of(Scan scan) {
    return find(format -> format.isFormat(scan));
  }

  /** The format of a connector's stream; as above. */
  static TableFormat of(MicroBatchStream stream) {
    return find(format -> format.isFormat(stream));
  }

  /** The format of a connector's partition; as above. */
  static TableFormat of(InputPartition partition) {
    return find(format -> format.isFormat(partition));
  }

  /** The clauses of a MERGE that change rows without a match; null for other plans. */
  static UnmatchedClauses unmatchedClauses(LogicalPlan command) {
    for (TableFormat each : formats) {
      try {
        UnmatchedClauses found = each.unmatchedClauses(command);
        if (found != null) return found;
      } catch (Throwable failure) {
        Failures.forgive(failure); // the command reads all files
      }
    }
    return null;
  }

  private static TableFormat find(Predicate<TableFormat> isFormat) {
    for (TableFormat each : formats) {
      try {
        if (isFormat.test(each)) return each;
      } catch (Throwable failure) {
        Failures.forgive(failure); // tables of other formats are not affected
      }
    }
    return NONE;
  }
}
