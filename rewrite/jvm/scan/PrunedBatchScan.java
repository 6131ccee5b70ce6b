package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
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
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.source.ConnectorSource;
import rewrite.jvm.source.FileCounter;

/**
 * A connector's scan without the pruned files.
 *
 * <p>Only the plan's transient field references it: executors get the connector's own objects.
 * Equality includes the pruned files, as that of PrunedFileIndex does.
 */
public final class PrunedBatchScan implements Scan, SupportsRuntimeV2Filtering {
  private final ConnectorSource read;
  private final Scan connector;
  private final ScanPruning pruning;
  private final InputPartition[] allPartitions;
  private final boolean isGrouped;
  private final boolean filtersRows;
  private final Map<String, JoinKeySet> awaited;
  private Predicate[] sparksFilters = new Predicate[0];
  private Set<String> pruned;
  private Batch batch = new PrunedBatch(this);

  /**
   * Takes the partitions that the plan has without the index, or null. If `isGrouped`, joins rely
   * on the partitions and their keys. If `filtersRows`, the reader skips row groups by the keys of
   * joins. `awaited` has the key sets whose values Spark passes to `filter`, by the name of the
   * column in the runtime filter; a filter without keys has null.
   */
  PrunedBatchScan(
      ConnectorSource read, ScanPruning pruning, InputPartition[] allPartitions,
      boolean isGrouped, boolean filtersRows, Map<String, JoinKeySet> awaited) {
    this.read = read;
    this.connector = read.scan();
    this.pruning = pruning;
    this.allPartitions = allPartitions;
    this.isGrouped = isGrouped;
    this.filtersRows = filtersRows;
    this.awaited = awaited;
  }

  @Override public Batch toBatch() {
    return batch;
  }

  /** Spark calls this before a scan with runtime filters runs: the keys are collected. It omits
      what it cannot translate. */
  @Override public void filter(Predicate[] predicates) {
    try {
      batch = new PrunedBatch(this);
      pruned = null;
      List<Predicate> others = new ArrayList<>();
      Map<String, List<Object>> values = new HashMap<>();
      for (Predicate predicate : predicates) {
        String column = column(predicate);
        if (awaited.containsKey(column)) {
          values.put(column, values(predicate));
        } else {
          others.add(predicate);
        }
      }
      sparksFilters = others.toArray(Predicate[]::new);
      if (pruning.response() != null) return;
      awaited.forEach((column, set) -> {
        if (set != null && !pruning.isCollected()) {
          set.accept(values.get(column), pruning.maxBytes());
        }
      });
      pruning.collectAndLookUp();
    } catch (Throwable failure) {
      pruning.readAll(Failures.forgive(failure));
    }
  }

  /** Returns the column of a runtime filter; null if the filter is not on a bare column. */
  private static String column(Predicate filter) {
    return filter.children().length > 0
            && filter.children()[0] instanceof NamedReference column
            && column.fieldNames().length == 1
        ? column.fieldNames()[0]
        : null;
  }

  private static List<Object> values(Predicate in) {
    List<Object> out = new ArrayList<>(); // some may be null
    Arrays.stream(in.children()).skip(1)
        .forEach(literal -> out.add(((LiteralValue<?>) literal).value()));
    return out;
  }

  /** Counts the files, for explain. */
  Map<String, Object> count() throws Exception {
    ScanPruning forecast = pruning.forecast();
    if (!forecast.isCounted()) findPrunable(read, forecast);
    return forecast.describe();
  }

  static Set<String> findPrunable(ConnectorSource read, ScanPruning pruning)
      throws Exception {
    FileCounter counter = pruning.createCounter(read.locations());
    Set<String> out = read.findPrunable(counter);
    pruning.finish(counter);
    return out;
  }

  ScanPruning pruning() {
    return pruning;
  }

  /** Returns the connector's scan of all files. */
  ConnectorSource read() {
    return read;
  }

  private InputPartition[] plan() throws Exception {
    if (pruning.response() == null) return sparksFilters.length == 0 ? allPartitions : planAll();
    ConnectorSource source = copyWithFilters();
    if (pruned == null) pruned = findPrunable(source, pruning);
    return source.without(pruned, rowKeys(), isGrouped);
  }

  /** Plans all files as the connector does, by a copy that nothing else has changed. */
  private InputPartition[] planAll() {
    return copyWithFilters().scan().toBatch().planInputPartitions();
  }

  /** Returns a copy of the connector's scan, with the runtime filters by which it prunes
      partitions. A scan that cannot be copied is filtered itself, as Spark does. */
  private ConnectorSource copyWithFilters() {
    ConnectorSource copy = read.copy();
    ConnectorSource source = copy == null ? read : copy;
    if (sparksFilters.length > 0) {
      ((SupportsRuntimeV2Filtering) source.scan()).filter(sparksFilters);
    }
    return source;
  }

  /** Returns the keys by which the reader skips row groups. */
  private List<JoinKeySet> rowKeys() {
    if (!filtersRows) return List.of();
    return pruning.keys().stream().filter(set -> set.source().alsoNeeded().isEmpty()).toList();
  }

  @Override public StructType readSchema() {
    return connector.readSchema();
  }

  @Override public NamedReference[] filterAttributes() {
    return ((SupportsRuntimeV2Filtering) connector).filterAttributes();
  }

  @Override public CustomMetric[] supportedCustomMetrics() {
    return connector.supportedCustomMetrics();
  }

  @Override public CustomTaskMetric[] reportDriverMetrics() {
    return connector.reportDriverMetrics();
  }

  @Override public Scan.ColumnarSupportMode columnarSupportMode() {
    return connector.columnarSupportMode();
  }

  /** Spark's EXPLAIN shows this. */
  @Override public String description() {
    try {
      return pruning.show(connector.description());
    } catch (Throwable failure) {
      Failures.forgive(failure);
      return connector.description();
    }
  }

  @Override public boolean equals(Object other) {
    try {
      return this == other
          || other instanceof PrunedBatchScan that
              && connector.equals(that.connector)
              && pruning.prunesLike(that.pruning)
              && read.narrowing(rowKeys()).equals(that.read.narrowing(that.rowKeys()));
    } catch (Throwable failure) {
      Failures.forgive(failure);
      return this == other;
    }
  }

  @Override public int hashCode() {
    return connector.hashCode();
  }

  /** Plans once, on Spark's first call. */
  private static final class PrunedBatch implements Batch {
    private final PrunedBatchScan scan;
    private InputPartition[] planned;

    PrunedBatch(PrunedBatchScan scan) {
      this.scan = scan;
    }

    @Override public synchronized InputPartition[] planInputPartitions() {
      try {
        if (planned == null) planned = Objects.requireNonNull(scan.plan(), "the format plans nothing");
        return planned;
      } catch (Throwable failure) {
        Failures.passOn(failure);
        planned = scan.planAll();
        scan.pruning.readAll(Failures.forgive(failure));
        return planned;
      }
    }

    /** Readers that fit all files also fit the remaining ones. */
    @Override public PartitionReaderFactory createReaderFactory() {
      return scan.connector.toBatch().createReaderFactory();
    }

    @Override public boolean equals(Object other) {
      try {
        return other instanceof PrunedBatch that && scan.equals(that.scan);
      } catch (Throwable failure) {
        Failures.forgive(failure);
        return this == other;
      }
    }

    @Override public int hashCode() {
      return scan.connector.hashCode();
    }
  }
}
