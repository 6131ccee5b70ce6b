package rewrite.jvm.scan;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.SparkPlan;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.source.ScanSource;

/** A scan in a physical plan, of files or of a connector. */
public abstract class PhysicalScan {
  public abstract SparkPlan node();

  /** Returns the table that is read; null if this scan must read all files. */
  public abstract ScanSource read();

  /** Whether a command changes the table. */
  abstract boolean isOfCommand();

  /** Whether it reads the batch of a stream. */
  abstract boolean isOfStream();

  /** Whether its files can have an index: not CSV files, nor Delta's own log. */
  public abstract boolean isIndexable();

  /** Whether keys may drop rows in the files that it reads. */
  boolean filtersRows() {
    return SkippingConf.filtersRows();
  }

  /** Returns its pruning; null if it is not pruned. */
  abstract ScanPruning pruning();

  public final boolean isPruned() {
    return pruning() != null;
  }

  /** Whether the scan has its own conditions, and not only those of the filters directly above. */
  abstract boolean hasFilters();

  /** Returns its conditions; `above` are those of the filters directly above it. */
  public abstract List<Expression> filters(List<Expression> above);

  /** Returns the keys of joins that the scan itself has. */
  abstract List<JoinKeySet> keys();

  /** Returns the scan with fewer files. If `waits`, Spark computes keys before it lists them. */
  abstract SparkPlan prune(ScanPruning pruning, boolean waits) throws Exception;

  /** Counts the files of a pruned scan, for explain; this may do a lookup, and list files. */
  public abstract Map<String, Object> count() throws Exception;

  /** Returns what was counted when the scan ran; null if it did not. */
  public final Map<String, Object> counts() {
    return pruning().describe();
  }

  /** Returns how many files it opened; null if that is unknown. */
  public abstract Number countOpened() throws Exception;

  /** Returns the bytes of these files; null if they are unknown. */
  public abstract Number sumOpenedBytes() throws Exception;

  /** Returns the source whose steps Sizes describes. */
  public abstract Object source();

  public abstract String name();
}
