package rewrite.jvm;

import java.util.List;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;

/**
 * Puts a PrunedFileIndex behind the scans whose table has an index.
 *
 * <p>Runs on physical plans as a columnar rule, the one hook that sees every scan with adaptive
 * execution on and off. A swap in the logical plan would lose Delta's deletion-vector filter, which
 * matches on the class of the file index, and deleted rows would come back.
 */
public final class PruneScans extends Rule {
  private final Skipping skipping;

  public PruneScans(Skipping skipping) {
    this.skipping = skipping;
  }

  public String ruleName() {
    return "rewrite.PruneScans";
  }

  public TreeNode apply(TreeNode plan) {
    skipping.planned();
    return ((SparkPlan) plan).transformUp(new Replace(skipping));
  }

  /** The read behind a scan, or null where it is not one that may be pruned. */
  public static IndexedScan read(FileSourceScanExec scan) {
    FileIndex location = scan.relation().location();
    // By name first: DeltaScan does not load in a session without Delta.
    return location.getClass().getSimpleName().equals("PreparedDeltaFileIndex")
        ? DeltaScan.of(location)
        : null;
  }

  /** The conditions above a scan that Spark handed to it. */
  public static List filters(FileSourceScanExec scan) {
    List filters = Scala.list(scan.partitionFilters());
    filters.addAll(Scala.list(scan.dataFilters()));
    return filters;
  }

  private static SparkPlan prune(FileSourceScanExec scan, Skipping skipping) {
    try {
      IndexedScan read = read(scan);
      if (read == null) return scan;
      List filters = filters(scan);
      if (skipping.refusal(read, filters) != null) return scan;
      return withLocation(
          scan, new PrunedFileIndex(scan.relation().location(), skipping.ask(read, filters)));
    } catch (Unanswered strict) {
      throw strict;
    } catch (Throwable failure) {
      return scan;
    }
  }

  private static FileSourceScanExec withLocation(FileSourceScanExec scan, FileIndex location) {
    HadoopFsRelation old = scan.relation();
    HadoopFsRelation relation = old.copy(
        location, old.partitionSchema(), old.dataSchema(), old.bucketSpec(), old.fileFormat(),
        old.options(), old.sparkSession());
    return scan.copy(
        relation, scan.stream(), scan.output(), scan.requiredSchema(), scan.partitionFilters(),
        scan.optionalBucketSet(), scan.optionalNumCoalescedBuckets(), scan.dataFilters(),
        scan.tableIdentifier(), scan.disableBucketedScan());
  }

  /** Visits the scans of a plan. */
  private static final class Replace extends scala.runtime.AbstractPartialFunction {
    private final Skipping skipping;

    Replace(Skipping skipping) {
      this.skipping = skipping;
    }

    public boolean isDefinedAt(Object node) {
      return node instanceof FileSourceScanExec;
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      return node instanceof FileSourceScanExec
          ? prune((FileSourceScanExec) node, skipping)
          : otherwise.apply(node);
    }
  }

  /** What `injectColumnar` takes: gives each session the rule. */
  public static final class Inject extends scala.runtime.AbstractFunction1 {
    private final Skipping skipping;

    public Inject(Skipping skipping) {
      this.skipping = skipping;
    }

    public Object apply(Object session) {
      return new Columnar(new PruneScans(skipping));
    }
  }

  /** The rule in the form that Spark runs before it inserts row-to-column transitions. */
  private static final class Columnar extends ColumnarRule {
    private final Rule rule;

    Columnar(Rule rule) {
      super();
      this.rule = rule;
    }

    public Rule preColumnarTransitions() {
      return rule;
    }
  }
}
