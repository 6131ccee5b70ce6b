package rewrite.jvm;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;

/**
 * Whether a scan is to be asked for the keys of a dimension: only where that can save more than it
 * costs. Everything here is known before anything runs.
 */
public final class Gate {
  private final Skipping skipping;
  private final IndexedScan read;
  private final Expression key;

  public Gate(Skipping skipping, LogicalPlan scan, Expression key) {
    this.skipping = skipping;
    this.key = key;
    read = Reads.of(scan, skipping);
  }

  /** Whether the scan is of a table that has an index. */
  public boolean concerns() {
    return read != null && skipping.hasIndex(read.table());
  }

  /** Whether the key is a partition column, which Spark prunes by itself. */
  public boolean isPartition() {
    List path = Filters.path(Filters.bare(key));
    return path != null && read.isPartition(path);
  }

  /**
   * The plans to take the keys from, the best first: all of the join's other side where Spark is
   * going to broadcast that, else the least of it that has a condition.
   */
  public Dimension[] ways(Dimension dimension) {
    Dimension least = dimension.least();
    if (least == dimension) return new Dimension[] {dimension};
    return Dimension.isBroadcast(dimension.plan())
        ? new Dimension[] {dimension, least}
        : new Dimension[] {least, dimension};
  }

  /**
   * Why the dimension's keys shall not be asked about; null: they shall.
   *
   * <p>`alike`: for how many parts of the query Spark would read the scan once without them.
   */
  public String refusal(Dimension dimension, int alike) {
    List path = Filters.path(Filters.bare(key));
    // Spark casts where types differ: then the key is no column.
    if (path == null || !key.dataType().equals(dimension.key().dataType())) {
      return "the join key is " + Filters.shape(key);
    }
    String identity = read.columns().identity(path);
    if (identity == null || !skipping.hasIndex(read.table(), identity)) {
      return path.get(path.size() - 1) + ", the join key, is not in the index";
    }
    String refusal = dimension.refusal();
    if (refusal != null) return refusal;
    if (read.files() < 2) return "the scan has a single file";
    if (onlyInBroadcast(dimension) && !Dimension.isBroadcast(dimension.plan())) {
      String slow = dimension.slow();
      if (slow != null) return dimension.name() + " is not read a second time, for it has " + slow;
      return "reading " + dimension.name() + " a second time (" + dimension.price()
          + " bytes) may cost more than it saves of " + read.bytes() + " bytes";
    }
    return skipping.history().refusal(shape(dimension, alike), alike);
  }

  /** The dynamic-pruning expression; notes for explain and history what it stands for. */
  public Expression let(Dimension dimension, int alike) {
    org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery condition =
        dimension.on(key, onlyInBroadcast(dimension));
    skipping.history().note(
        condition.exprId(), shape(dimension, alike), alike, dimension.name());
    return condition;
  }

  /**
   * Whether keys are taken only where Spark broadcasts the dimension anyway.
   *
   * <p>Else, where it does not, the dimension is read a second time, which has to be cheap.
   */
  private boolean onlyInBroadcast(Dimension dimension) {
    if (dimension.slow() != null) return true;
    scala.math.BigInt twice = dimension.price().$times(scala.math.BigInt.apply(2));
    return twice.compareTo(scala.math.BigInt.apply(read.bytes())) >= 0;
  }

  private String shape(Dimension dimension, int alike) {
    return read.table() + "\n" + Filters.shape(key) + "\n" + dimension.shape() + "\n" + alike;
  }
}
