package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.types.StructType;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.SkippingConf;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.source.ConnectorSource;
import rewrite.jvm.source.FileCounter;

/**
 * A connector's scan less the files that are pruned.
 *
 * <p>It stands behind the plan's transient scan; what reaches executors is the connector's own.
 * Equality includes what is left out, as that of PrunedFileIndex does.
 */
public final class PrunedBatchScan implements Scan, SupportsRuntimeV2Filtering {
  private final ConnectorSource read;
  private final Scan connector;
  private final ScanPruning pruning;
  private final InputPartition[] whole;
  private final boolean grouped;
  private final Map awaited;
  private Predicate[] own = new Predicate[0];
  private Set pruned;
  private Batch batch = new PrunedBatch(this);

  /**
   * `whole` is what the scan reads without the index, as the plan has it. Where it is `grouped`,
   * joins rely on its partitions, and on their keys. `awaited` are the key sets that Spark fills
   * in, by the name of the column in the runtime filter of each; a null is a filter without keys.
   */
  public PrunedBatchScan(
      ConnectorSource read, ScanPruning pruning, InputPartition[] whole, boolean grouped,
      Map awaited) {
    this.read = read;
    this.connector = read.scan();
    this.pruning = pruning;
    this.whole = whole;
    this.grouped = grouped;
    this.awaited = awaited;
  }

  public Batch toBatch() {
    return batch;
  }

  /** Spark's call before a scan with runtime filters runs: the keys are there. It leaves out what
      it cannot translate. */
  public void filter(Predicate[] predicates) {
    try {
      batch = new PrunedBatch(this);
      pruned = null;
      List others = new ArrayList();
      Map found = new HashMap();
      for (int i = 0; i < predicates.length; i++) {
        Object column = column(predicates[i]);
        if (awaited.containsKey(column)) {
          found.put(column, values(predicates[i]));
        } else {
          others.add(predicates[i]);
        }
      }
      own = (Predicate[]) others.toArray(new Predicate[0]);
      if (!pruning.isAsked()) {
        for (Iterator each = awaited.keySet().iterator(); each.hasNext(); ) {
          Object column = each.next();
          JoinKeySet set = (JoinKeySet) awaited.get(column);
          if (set != null && !pruning.isCollected()) {
            set.take((Collection) found.get(column), pruning.maxBytes());
          }
        }
        pruning.collectAndAsk();
      }
    } catch (Throwable failure) {
      pruning.giveUp(Failures.forgive(failure));
    }
  }

  /** What identifies a runtime filter; null: it is none of ours. */
  private static Object column(Predicate filter) {
    if (filter.children().length == 0 || !(filter.children()[0] instanceof NamedReference)) {
      return null;
    }
    String[] names = ((NamedReference) filter.children()[0]).fieldNames();
    return names.length == 1 ? names[0] : null;
  }

  private static Collection values(Predicate in) {
    List out = new ArrayList();
    for (int i = 1; i < in.children().length; i++) {
      out.add(((LiteralValue) in.children()[i]).value());
    }
    return out;
  }

  /** Counts what becomes of each file, for explain. */
  public Map count() throws Exception {
    ScanPruning shown = pruning.forecast();
    if (!shown.isCounted()) findPrunable(read, shown);
    return shown.describe();
  }

  private static Set findPrunable(ConnectorSource read, ScanPruning pruning) throws Exception {
    FileCounter tally = pruning.tally(read.locations());
    Set out = read.findPrunable(tally);
    pruning.done(tally);
    return out;
  }

  /** What was counted when the scan was planned; null if it was not. */
  Map known() {
    return pruning.isCounted() ? pruning.describe() : null;
  }

  /** The connector's scan of all files. */
  ConnectorSource read() {
    return read;
  }

  private InputPartition[] plan() throws Exception {
    if (!pruning.isAsked()) return own.length == 0 ? whole : all();
    ConnectorSource now = filtered();
    if (pruned == null) pruned = findPrunable(now, pruning);
    return now.without(pruned, rows(), grouped);
  }

  /** What the connector plans by itself, by a copy that nothing else has changed. */
  private InputPartition[] all() {
    return filtered().scan().toBatch().planInputPartitions();
  }

  /** A copy of the connector's scan, with the runtime filters that it prunes partitions by. A scan
      that cannot be copied is filtered itself, as Spark does. */
  private ConnectorSource filtered() {
    ConnectorSource copy = read.copy();
    ConnectorSource now = copy == null ? read : copy;
    if (own.length > 0) ((SupportsRuntimeV2Filtering) now.scan()).filter(own);
    return now;
  }

  /** The keys that row groups are skipped by. */
  private List rows() {
    return SkippingConf.filtersRows() ? pruning.keys() : new ArrayList();
  }

  public StructType readSchema() {
    return connector.readSchema();
  }

  public NamedReference[] filterAttributes() {
    return ((SupportsRuntimeV2Filtering) connector).filterAttributes();
  }

  public CustomMetric[] supportedCustomMetrics() {
    return connector.supportedCustomMetrics();
  }

  public CustomTaskMetric[] reportDriverMetrics() {
    return connector.reportDriverMetrics();
  }

  public Scan.ColumnarSupportMode columnarSupportMode() {
    return connector.columnarSupportMode();
  }

  /** Shown in Spark's EXPLAIN. */
  public String description() {
    try {
      return pruning.show(connector.description());
    } catch (Throwable failure) {
      Failures.forgive(failure);
      return connector.description();
    }
  }

  public boolean equals(Object other) {
    try {
      return this == other
          || other instanceof PrunedBatchScan
              && connector.equals(((PrunedBatchScan) other).connector)
              && pruning.prunesAs(((PrunedBatchScan) other).pruning)
              && narrowing().equals(((PrunedBatchScan) other).narrowing());
    } catch (Throwable failure) {
      Failures.forgive(failure);
      return this == other;
    }
  }

  private String narrowing() {
    return read.narrowing(rows());
  }

  public int hashCode() {
    return connector.hashCode();
  }

  /** What is planned once, when Spark first wants to know. */
  private static final class PrunedBatch implements Batch {
    private final PrunedBatchScan scan;
    private InputPartition[] planned;

    PrunedBatch(PrunedBatchScan scan) {
      this.scan = scan;
    }

    public synchronized InputPartition[] planInputPartitions() {
      try {
        if (planned == null) planned = scan.plan();
        return planned;
      } catch (Throwable failure) {
        Failures.passOn(failure);
        planned = scan.all();
        scan.pruning.giveUp(Failures.forgive(failure));
        return planned;
      }
    }

    /** That of all files: readers that suit them suit the rest. */
    public PartitionReaderFactory createReaderFactory() {
      return scan.connector.toBatch().createReaderFactory();
    }

    public boolean equals(Object other) {
      try {
        return other instanceof PrunedBatch && scan.equals(((PrunedBatch) other).scan);
      } catch (Throwable failure) {
        Failures.forgive(failure);
        return this == other;
      }
    }

    public int hashCode() {
      return scan.connector.hashCode();
    }
  }
}
