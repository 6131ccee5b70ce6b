package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.SparkPlan;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.source.ScanSource;

/** A scan in a physical plan, of files or of a connector. */
public abstract class PhysicalScan {
  /** The node of the plan. */
  public abstract SparkPlan node();

  /** The read behind it, or null where it is not one that may be pruned. */
  public abstract ScanSource read();

  /** Whether it is of a table that a command changes. */
  abstract boolean isOfCommand();

  /** Whether it reads the batch of a stream. */
  abstract boolean isStreamed();

  /** Whether an index can be made of what it reads: not of CSV, nor of Delta's own log. */
  public abstract boolean isIndexable();

  /** Whether keys may drop rows in the files that it reads. */
  boolean filtersRows() {
    return SkippingConf.filtersRows();
  }

  /** Whether it is pruned already. */
  public abstract boolean isPruned();

  /** Whether the conditions on its rows are its own, not only those of filters directly above. */
  public abstract boolean hasFilters();

  /** Its conditions; `above` are those of filters directly above it. */
  public abstract List filters(List above);

  /** The sets of keys that joins demand of the scan itself. */
  public List keys() {
    return new ArrayList();
  }

  /** The scan with fewer files. With `waits`, Spark is to collect keys before it runs. */
  public abstract SparkPlan pruned(ScanPruning pruning, boolean waits);

  /** What became of each file of a pruned scan, for explain. */
  public abstract Map count() throws Exception;

  /** The same as far as it is known, without asking or listing; null where Spark never listed. */
  public abstract Map known();

  /** The files that it opened; null where that is not known. */
  public abstract Object opened() throws Exception;

  /** Their bytes; null where that is not known. */
  public abstract Object openedBytes() throws Exception;

  /** What Sizes tells the steps of the table format from. */
  public abstract Object source();

  /** The table's name, for people. */
  public abstract String name();
}
