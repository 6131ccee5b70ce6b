package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.spark.Partition;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.execution.InSubqueryExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SubqueryExec;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.FileScan;
import org.apache.spark.util.AccumulatorV2;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.shims.BatchScans;
import rewrite.jvm.shims.Nodes;
import rewrite.jvm.source.ConnectorSource;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.ScanSources;
import rewrite.jvm.source.TableStatistics;

/** A scan of a connector: Iceberg. What joins demand is among its runtime filters. */
final class PhysicalBatchScan extends PhysicalScan {
  private final BatchScanExec scan;
  private final PruningFeedback feedback;
  private final TableStatistics statistics;
  private Map opened;

  PhysicalBatchScan(
      BatchScanExec scan, PruningFeedback feedback, TableStatistics statistics) {
    this.scan = scan;
    this.feedback = feedback;
    this.statistics = statistics;
  }

  public SparkPlan node() {
    return scan;
  }

  public ScanSource read() {
    return ScanSources.of(scan.scan(), scan.output());
  }

  public boolean isPruned() {
    return scan.scan() instanceof PrunedBatchScan;
  }

  boolean isOfCommand() {
    return ScanSources.isOfCommand(scan.table());
  }

  boolean isStreamed() {
    return false; // streams have a node of their own
  }

  public boolean isIndexable() {
    return !(scan.scan() instanceof FileScan);
  }

  public boolean hasFilters() {
    return false;
  }

  public List filters(List above) {
    return new ArrayList(above);
  }

  /** Those that the index can be asked about. Where Spark gave one up, all that is known of it is
      that it was there, and it may have been Spark's own. */
  public List keys() {
    List out = new ArrayList();
    if (scan.runtimeFilters().isEmpty()) return out;
    Set partition = partitionColumns();
    for (int i = 0; i < scan.runtimeFilters().size(); i++) {
      JoinKeySet set = keys(scan.runtimeFilters().apply(i));
      if (set == null || isOwn(set, partition)) continue;
      if (set.column() == null ? partition.isEmpty() : isAnswered(set)) out.add(set);
    }
    return out;
  }

  /** The runtime filters that the connector prunes partitions by. */
  private List own() {
    List out = new ArrayList();
    Set partition = partitionColumns();
    for (int i = 0; i < scan.runtimeFilters().size(); i++) {
      Expression filter = scan.runtimeFilters().apply(i);
      JoinKeySet set = keys(filter);
      if (set == null || isOwn(set, partition)) out.add(filter);
    }
    return out;
  }

  private JoinKeySet keys(Expression runtimeFilter) {
    return JoinKeySet.of(runtimeFilter, feedback);
  }

  /** Whether Spark put it there, for partitions. Without adaptive execution one that reads its
      dimension again has lost its name, but Spark makes none of these unless told to. */
  private boolean isOwn(JoinKeySet set, Set partition) {
    return set.column() != null
        && partition.contains(root(set).name())
        && !feedback.knows(set.expression().exprId())
        && (set.isBroadcast() || !isAnswered(set));
  }

  /** Whether the index, or the table, can be asked about it. */
  private boolean isAnswered(JoinKeySet set) {
    return statistics.know(read(), set.column())
        || statistics.isIndexed(read(), Inversion.column(set.column()), Integer.MAX_VALUE)
        || statistics.isIndexed(read(), set.asked());
  }

  private Set partitionColumns() {
    Set out = new HashSet();
    NamedReference[] columns = ((SupportsRuntimeV2Filtering) scan.scan()).filterAttributes();
    for (int i = 0; i < columns.length; i++) {
      out.add(columns[i].fieldNames()[0]);
    }
    return out;
  }

  private static Attribute root(JoinKeySet set) {
    return (Attribute) set.column().references().head();
  }

  public SparkPlan pruned(ScanPruning pruning, boolean waits) {
    List filters = own();
    Map awaited = new HashMap();
    for (int i = 0; waits && !pruning.isCollected() && i < pruning.keys().size(); i++) {
      JoinKeySet set = (JoinKeySet) pruning.keys().get(i);
      if (!set.isBroadcast()) continue;
      Attribute column = unlike(root(set)).withDataType(set.expression().child().dataType());
      awaited.put(column.name(), set);
      filters.add(new DynamicPruningExpression(onColumn(set, column)));
    }
    if (waits && awaited.isEmpty()) {
      Attribute column = unlike((Attribute) scan.output().head());
      awaited.put(column.name(), null);
      filters.add(new DynamicPruningExpression(nothing(column)));
    }
    PrunedBatchScan now = new PrunedBatchScan(
        (ConnectorSource) pruning.read(), pruning, waits ? whole() : null,
        BatchScans.isGrouped(scan), awaited);
    BatchScanExec pruned = BatchScans.copy(scan, now, ScalaInterop.asScala(filters));
    pruned.copyTagsFrom(scan);
    return pruned;
  }

  /** The column by a name that no other has: the name is all that Spark hands on with the values.
      */
  private static Attribute unlike(Attribute column) {
    String name = "skipping_" + UUID.randomUUID().toString().replace('-', '_');
    return column.withName(name);
  }

  /** Spark hands on the values for a bare column only, of their own type. */
  private static Expression onColumn(JoinKeySet set, Attribute column) {
    return set.expression().withNewChildren(
        ScalaInterop.asScala(Collections.singletonList(column)));
  }

  /** A runtime filter that collects nothing: Spark asks a scan for its files late if it has one. */
  private static Expression nothing(Attribute column) {
    List none = new ArrayList();
    SparkPlan rows =
        Nodes.scan(
            ScalaInterop.asScala(Collections.singletonList(column)), ScalaInterop.asScala(none));
    return new InSubqueryExec(
        column, new SubqueryExec("skipping", rows, scala.Option.empty()),
        NamedExpression$.MODULE$.newExprId(), false, null, null);
  }

  private InputPartition[] whole() {
    List partitions = ScalaInterop.asJava(scan.inputPartitions());
    return (InputPartition[]) partitions.toArray(new InputPartition[0]);
  }

  public Map count() throws Exception {
    return ((PrunedBatchScan) scan.scan()).count();
  }

  public Object opened() throws Exception {
    Map files = openedFiles();
    return files == null ? null : Integer.valueOf(files.size());
  }

  public Object openedBytes() throws Exception {
    Map files = openedFiles();
    if (files == null) return null;
    long sum = 0;
    for (java.util.Iterator each = files.values().iterator(); each.hasNext(); ) {
      sum += ((Long) each.next()).longValue();
    }
    return Long.valueOf(sum);
  }

  /** The files of the partitions that ran: Iceberg's own metric is of its planning. */
  private Map openedFiles() throws Exception {
    if (opened != null) return opened;
    if (scan.metrics().get("numSplits").isEmpty()) return null;
    Map files = new HashMap();
    // Nothing ran yet, or nothing was left to read. Spark counts splits in a plan's first run only.
    if (metric("numSplits") == 0 && metric("numOutputRows") == 0) return files;
    Partition[] partitions = scan.inputRDD().partitions();
    for (int i = 0; i < partitions.length; i++) {
      scala.collection.Iterable planned = BatchScans.inputs(partitions[i]);
      if (planned == null) continue;
      List inputs = ScalaInterop.asJava(planned);
      for (int j = 0; j < inputs.size(); j++) {
        ScanSources.addFiles((InputPartition) inputs.get(j), files);
      }
    }
    opened = files;
    return files;
  }

  private long metric(String name) {
    return ((Number) ((AccumulatorV2) scan.metrics().apply(name)).value()).longValue();
  }

  public Map known() {
    return ((PrunedBatchScan) scan.scan()).known();
  }

  public Object source() {
    return isPruned() ? ((PrunedBatchScan) scan.scan()).read() : read();
  }

  public String name() {
    return scan.table().name();
  }
}
