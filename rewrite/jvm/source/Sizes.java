package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import rewrite.jvm.bridge.Failures;

/** Counts the files and bytes that a table format leaves after each step of its own, for explain. */
public final class Sizes {
  private Sizes() {}

  /** Returns the steps that a table's file index, or a connector's scan, knows. */
  public static List<SizeStep> of(Object source) {
    try {
      if (source instanceof ConnectorSource connector) return connector.sizes();
      List<SizeStep> steps = new ArrayList<>();
      if (source instanceof FileIndex index) TableFormats.of(index).addSizes(index, steps);
      if (source instanceof PartitioningAwareFileIndex index) {
        SizeStep.add(steps, "table", index.allFiles().size(), index.sizeInBytes());
      }
      return steps;
    } catch (Throwable failure) {
      Failures.passOn(failure); // the steps are only shown
    }
    return List.of();
  }
}
