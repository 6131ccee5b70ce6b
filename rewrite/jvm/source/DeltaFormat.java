package rewrite.jvm.source;

import java.util.List;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import rewrite.jvm.predicate.UnmatchedClauses;

/** Delta Lake. Its classes are loaded only behind `isFormat`. */
public final class DeltaFormat implements TableFormat {
  private static final String QUERY = "PreparedDeltaFileIndex";
  private static final String BATCH = "TahoeBatchFileIndex";
  private static final String MERGE = "MergeIntoCommand";

  @Override public boolean isFormat(FileIndex index) {
    return isQuery(index) || isBatch(index);
  }

  @Override public FileSource open(HadoopFsRelation relation) {
    return DeltaSource.of(relation);
  }

  @Override public boolean isSnapshot(FileIndex index) {
    return true;
  }

  @Override public boolean isOfCommand(FileIndex index) {
    return isBatch(index) && !DeltaSource.isOfStream(index);
  }

  @Override public boolean isOfStream(FileIndex index) {
    return isBatch(index) && DeltaSource.isOfStream(index);
  }

  @Override public UnmatchedClauses unmatchedClauses(LogicalPlan command) {
    return command.getClass().getSimpleName().equals(MERGE)
        ? DeltaMerge.unmatchedClauses(command)
        : null;
  }

  @Override public void addSizes(FileIndex index, List<SizeStep> steps) {
    if (isQuery(index)) DeltaSource.addSizes(index, steps);
  }

  /** Whether a command or a stream has chosen the files before. */
  private static boolean isBatch(FileIndex index) {
    return index.getClass().getSimpleName().equals(BATCH);
  }

  private static boolean isQuery(FileIndex index) {
    return index.getClass().getSimpleName().equals(QUERY);
  }
}
