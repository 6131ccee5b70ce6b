package rewrite.jvm.join;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.KeySource;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.predicate.Casts;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.source.ConnectorSource;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.ScanSources;
import rewrite.jvm.source.TableStatistics;

/**
 * Whether a scan is to be asked for the keys of a dimension: only where that can save more than it
 * costs. Everything here is known before anything runs.
 */
public final class PruningCost {
  /** Where the bounds of more files overlap, a few keys are in nearly all of them. */
  private static final double MOST_OVERLAP = 0.9;

  private final IndexClient client;
  private final PruningFeedback feedback;
  private final TableStatistics statistics;
  private final ScanShare left;
  private final LogicalPlan scan;
  private final List conditions;
  private final ScanSource read;
  private final Expression key;
  private final Expression column;

  /** `conditions` are those directly above the scan. */
  public PruningCost(
      IndexClient client, PruningFeedback feedback, TableStatistics statistics, LogicalPlan scan,
      List conditions, Expression key) {
    this.client = client;
    this.feedback = feedback;
    this.statistics = statistics;
    this.left = new ScanShare(client, statistics);
    this.scan = scan;
    this.conditions = conditions;
    this.key = key;
    read = ScanSources.of(scan, client);
    boolean isAsItIs = read != null && statistics.isIndexed(read, key);
    this.column = isAsItIs ? Casts.bare(key) : Inversion.column(key);
  }

  /** Whether the scan is of a table that has an index, or may know itself where the key is. */
  public boolean concerns() {
    return read != null && (client.hasIndex(read.table()) || statistics.know(read, column));
  }

  /** Whether conditions on the rows of a file decide whether any is left. */
  public boolean hasOwnConditions(List conditions) {
    for (int i = 0; i < conditions.size(); i++) {
      Expression condition = (Expression) conditions.get(i);
      if (condition instanceof IsNotNull || Conditions.dynamic(condition) != null) continue;
      List columns = ScalaInterop.asJava(condition.references().toSeq());
      for (int j = 0; j < columns.size(); j++) {
        List path = Conditions.path((Expression) columns.get(j));
        if (path == null || !read.isPartition(path)) return true;
      }
    }
    return false;
  }

  /** Whether the key is a partition column, which Spark prunes by where it broadcasts the other
      side. */
  public boolean isPartition() {
    List path = Conditions.path(column);
    return path != null && read.isPartition(path);
  }

  /**
   * The plans to take the keys from, the best first: all of the join's other side where Spark is
   * going to broadcast that, else the least of it that has a condition.
   */
  public BuildSide[] ways(BuildSide dimension) {
    BuildSide least = dimension.least();
    if (least == dimension) return new BuildSide[] {dimension};
    return dimension.isBroadcast()
        ? new BuildSide[] {dimension, least}
        : new BuildSide[] {least, dimension};
  }

  /**
   * Why the dimension's keys shall not be asked about; null: they shall.
   *
   * <p>`alike`: for how many parts of the query Spark would read the scan once without them.
   */
  public String refusal(BuildSide dimension, int alike) {
    List path = Conditions.path(column);
    boolean indexed = statistics.isIndexed(read, column, dimension.columns());
    // Spark casts where types differ: then the key is no column.
    if (path == null && !indexed || !dimension.isComparable(key)) {
      return "the join key is " + Conditions.shape(key);
    }
    if (!indexed && !statistics.know(read, column)) {
      return path.get(path.size() - 1) + ", the join key, is not in the index";
    }
    double overlap = indexed ? 0 : statistics.overlap(read, column);
    if (overlap >= MOST_OVERLAP) {
      return "the table is in no order of " + path.get(path.size() - 1) + ": the bounds of "
          + (int) (100 * overlap) + " % of its files overlap";
    }
    String refusal = dimension.refusal();
    if (refusal != null) return refusal;
    if (read.files() < 2) return "the scan has a single file";
    refusal = dimension.refusal(scala.math.BigInt.apply(read.bytes()));
    if (refusal != null) return refusal;
    if (alike > 1 && !dimension.selective() && !BuildSide.isCostIgnored) {
      return dimension.name() + " has no condition, and Spark reads the scan once for " + alike
          + " parts";
    }
    String fleeting = dimension.fleeting();
    if (fleeting != null && (read instanceof ConnectorSource || isPartition())) {
      return "the dimension has " + fleeting
          + ", and partitions and connectors get their keys first";
    }
    if (onlyInBroadcast(dimension) && !dimension.isBroadcast()) {
      if (fleeting != null) {
        return "the dimension has " + fleeting + ", and may have other rows when read again";
      }
      String slow = dimension.slow();
      if (slow != null) return dimension.name() + " is not read a second time, for it has " + slow;
      return "reading " + dimension.name() + " a second time (" + dimension.price(left)
          + " bytes) may cost more than it saves of " + bytesLeft() + " bytes";
    }
    return history(dimension, alike);
  }

  /** What earlier keys of the dimension say against it; null: nothing. */
  public String history(BuildSide dimension, int alike) {
    if (BuildSide.isCostIgnored) return null;
    return feedback.rejectReason(
        shape(dimension, alike), String.valueOf(dimension.price()), alike);
  }

  /** The dynamic-pruning expression; notes for explain and history what it stands for. */
  public Expression let(BuildSide dimension, int alike) {
    ExprId id =
        feedback.registry().register(
            KeySource.of(
                dimension.name(), shape(dimension, alike), String.valueOf(dimension.price()), alike,
                dimension.fleeting(), dimension.join()));
    return dimension.on(key, id, onlyInBroadcast(dimension));
  }

  /**
   * Whether keys are taken only where Spark broadcasts the dimension anyway.
   *
   * <p>Else, where it does not, the dimension is read a second time, which has to be cheap: what
   * is read of it, and what there is to save, is what their own conditions leave. What a stream
   * reads it reads once.
   */
  private boolean onlyInBroadcast(BuildSide dimension) {
    if (dimension.slow() != null || dimension.fleeting() != null) return true;
    if (dimension.plan().isStreaming()) return true;
    boolean isDear = isDear(dimension.price(), read.bytes());
    if (dimension.isBroadcast()) return isDear;
    // Tables are asked only where that decides.
    if (isDear && isDear(dimension.price(left), read.bytes())) return true;
    return isDear(dimension.price(), bytesLeft()) && isDear(dimension.price(left), bytesLeft());
  }

  private static boolean isDear(scala.math.BigInt price, long bytes) {
    if (BuildSide.isCostIgnored) return false;
    scala.math.BigInt twice = price.$times(scala.math.BigInt.apply(2));
    return twice.compareTo(scala.math.BigInt.apply(bytes)) >= 0;
  }

  /** What the scan's own conditions leave of it. */
  private long bytesLeft() {
    return (long) (left.of(scan, conditions) * read.bytes());
  }

  /** What history knows a question by. What keys saved before there was an index, or before it was
      altered, says nothing of what they save with it. */
  private String shape(BuildSide dimension, int alike) {
    boolean isIndexed = statistics.isIndexed(read, column, dimension.columns());
    String asked = isIndexed ? client.revision(read.table()) : "statistics";
    return read.table() + "\n" + asked + "\n" + Conditions.shape(key) + "\n" + dimension.shape()
        + "\n" + alike;
  }
}
