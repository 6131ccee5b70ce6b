package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import rewrite.jvm.bridge.Failures;

/** How many files, and bytes, a table format leaves after each step of its own, for explain. */
public final class Sizes {
  private Sizes() {}

  /** Of each step its name, the files and the bytes, as a table's file index or a connector's scan
      tells them; what it does not tell is left out. */
  public static List of(Object source) {
    List steps = new ArrayList();
    try {
      if (source instanceof ConnectorSource) return ((ConnectorSource) source).sizes();
      if (!(source instanceof FileIndex)) return steps;
      FileIndex index = (FileIndex) source;
      TableFormats.of(index).addSizes(index, steps);
      if (index instanceof PartitioningAwareFileIndex) {
        int files = ((PartitioningAwareFileIndex) index).allFiles().size();
        SizeSteps.add(steps, "table", Long.valueOf(files), Long.valueOf(index.sizeInBytes()));
      }
    } catch (Throwable unknown) {
      Failures.passOn(unknown);
      steps.clear(); // it is only shown
    }
    return steps;
  }
}
