package rewrite.jvm.join;

import java.math.BigInteger;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.KeySource;
import rewrite.jvm.keys.TupleRow;
import rewrite.jvm.predicate.Casts;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.source.ReportedSize;
import rewrite.jvm.source.ScanSource;
import rewrite.jvm.source.ScanSources;
import rewrite.jvm.source.TableStatistics;

/** Decides if a scan waits for keys: only if the benefit may exceed the overhead. Nothing runs
    before that is decided. */
final class PruningCost {
  /** If the bounds of more files overlap, a few keys are in nearly all files. */
  private static final double MAX_OVERLAP = 0.9;

  private final PruningContext context;
  private final TableStatistics statistics;
  private final RemainingFraction remaining;
  private final LogicalPlan scan;
  private final List<Expression> conditions;
  private final ScanSource source;
  private final Expression key;
  private final Expression column;
  /** The columns that OR joins in the key, each alone; empty for any other key. */
  private final List<PruningCost> operands;

  /** `conditions` are those directly above the scan; `key` is an expression over the scan. */
  PruningCost(
      PruningContext context, LogicalPlan scan, List<Expression> conditions, Expression key) {
    this.context = context;
    this.statistics = context.statistics();
    this.remaining = new RemainingFraction(context.client(), statistics);
    this.scan = scan;
    this.conditions = conditions;
    this.key = key;
    source = ScanSources.of(scan, context.client());
    boolean isIndexed = source != null && statistics.isIndexed(source, key);
    column = isIndexed ? Casts.bare(key) : Inversion.column(key);
    operands =
        TupleRow.hasOperands(key)
            ? TupleRow.columns(key).stream()
                .map(each -> new PruningCost(context, scan, conditions, each))
                .toList()
            : List.of();
  }

  /** Whether the table has an index, or may know itself which files have a key. */
  boolean appliesTo() {
    if (!operands.isEmpty()) return operands.stream().allMatch(PruningCost::appliesTo);
    return source != null
        && (context.client().hasIndex(source.table()) || statistics.know(source, column));
  }

  /** Whether conditions depend on the rows of a file, not only on its partition. */
  boolean dependsOnRows(List<Expression> conditions) {
    return conditions.stream()
        .filter(each -> !(each instanceof IsNotNull) && !Filters.isDynamic(each))
        .flatMap(each -> ScalaInterop.asJava(each.references().toSeq()).stream())
        .map(Conditions::path)
        .anyMatch(path -> path == null || !source.isPartition(path));
  }

  /** Whether the key is a partition column, which Spark uses if it broadcasts the other side. */
  boolean isPartition() {
    List<String> path = Conditions.path(column);
    return path != null && source.isPartition(path);
  }

  /** Return the plans to take keys from, the best first: the complete side if Spark broadcasts it,
      otherwise its smallest selective part. */
  List<FilteringSide> candidateSides(FilteringSide side) {
    FilteringSide part = side.smallestSelectivePart();
    if (part == side) return List.of(side);
    return side.isBroadcast() ? List.of(side, part) : List.of(part, side);
  }

  /** Return why not to collect keys from a side, or null. `copies` are the parts of the query for
      which Spark would read the scan only once without them. */
  String rejectReason(FilteringSide side, int copies) {
    // Spark casts if types differ: then the key is no column.
    if (!side.keys().isComparable(key)) return "the join key is " + Conditions.shape(key);
    // Files are found by location where OR joins columns: see ScanPruning.
    if (!operands.isEmpty() && source.mayReplaceFiles()) {
      return "the join key is " + TupleRow.shape(key) + ", and files may be replaced";
    }
    // Spark would read a side of several tables by the broadcast of the keys, and then cannot tell how
    // many rows the stream has read.
    if (scan.isStreaming() && side.plan().collectLeaves().size() > 1) {
      return "a stream takes keys of a single table only";
    }
    for (PruningCost each : operands.isEmpty() ? List.of(this) : operands) {
      String unknown = each.rejectColumn(side);
      if (unknown != null) return unknown;
    }
    String unusable = side.rejectReason();
    if (unusable != null) return unusable;
    if (source.files() < 2) return "the scan has a single file";
    String unselective = new SideCost(side).rejectReason(BigInteger.valueOf(source.bytes()));
    if (unselective != null) return unselective;
    if (copies > 1 && !Selectivity.isSelective(side.plan()) && !SideCost.isIgnored) {
      return side.name() + " has no condition, and Spark reads the scan once for " + copies
          + " parts";
    }
    String nonRepeatable = side.nonRepeatableReason();
    if (nonRepeatable != null && isPartition()) {
      return "the dimension has " + nonRepeatable + ", and partitions get their keys first";
    }
    if (isOnlyShuffled(side)) {
      String rejected =
          fromShuffle(side) ? rejectShuffle(side) : rejectReread(side, nonRepeatable);
      if (rejected != null) return rejected;
    }
    return rejectReasonOfFeedback(side, copies);
  }

  /** Return why nothing knows which files have some values of the column, or null. */
  private String rejectColumn(FilteringSide side) {
    List<String> path = Conditions.path(column);
    boolean isIndexed = isIndexed(side);
    if (path == null && !isIndexed) return "the join key is " + Conditions.shape(key);
    if (!isIndexed && !statistics.know(source, column)) {
      return path.get(path.size() - 1) + ", the join key, is not in the index";
    }
    double overlap = isIndexed ? 0 : statistics.overlap(source, column);
    return overlap < MAX_OVERLAP
        ? null
        : "the table is in no order of " + path.get(path.size() - 1) + ": the bounds of "
            + (int) (100 * overlap) + " % of its files overlap";
  }

  private boolean isIndexed(FilteringSide side) {
    return statistics.isIndexed(source, column, side.columns())
        || operands.stream().anyMatch(each -> each.isIndexed(side));
  }

  /** Return why not to read the shuffle of a side once more, or null. */
  private String rejectShuffle(FilteringSide side) {
    LogicalPlan plan = side.plan();
    if (SideCost.isIgnored || PlanSize.isUnknown(plan)) return null;
    return PlanSize.bytes(plan).compareTo(BigInteger.valueOf(benefit())) <= 0
        ? null
        : "reading the shuffle of " + side.name() + " once more (" + PlanSize.bytes(plan)
            + " bytes) may cost more than it saves of " + benefit() + " bytes";
  }

  private String rejectReread(FilteringSide side, String nonRepeatable) {
    if (nonRepeatable != null) {
      return "the dimension has " + nonRepeatable + ", and may have other rows when read again";
    }
    String expensive = Repeatability.expensiveReason(side.plan());
    if (expensive != null) {
      return side.name() + " is not read a second time, for it has " + expensive;
    }
    return "reading " + side.name() + " a second time (" + new SideCost(side).overhead(remaining)
        + " bytes) may cost more than it saves of " + benefit() + " bytes";
  }

  /** Return why earlier keys of the side argue against it, or null. */
  String rejectReasonOfFeedback(FilteringSide side, int copies) {
    return SideCost.isIgnored
        ? null
        : context.feedback().rejectReason(shape(side, copies), overhead(side), copies);
  }

  /** Return the dynamic pruning expression; registers its source. `alsoNeeded` are conditions of rows
      that are needed without a partner. */
  Expression createFilter(FilteringSide side, int copies, List<Expression> alsoNeeded) {
    String nonRepeatable = side.nonRepeatableReason();
    boolean isShared = isOnlyShared(side);
    boolean canBeShuffled = isShared && fromShuffle(side);
    // Spark must not run the side again, nor use keys of other rows than those that the join reads.
    boolean isOnlyShared = canBeShuffled || nonRepeatable != null;
    KeySource origin =
        KeySource.of(
            side.name(), shape(side, copies), overhead(side), copies, nonRepeatable, side.join(),
            side.isBroadcast(), isOnlyShared, alsoNeeded);
    Expression filter =
        side.keys()
            .createFilter(
                key, side.plan(), context.registry().register(origin), isShared && !canBeShuffled);
    return isOnlyShared || !alsoNeeded.isEmpty() ? Conditions.setAside(filter) : filter;
  }

  private static String overhead(FilteringSide side) {
    return String.valueOf(new SideCost(side).overhead());
  }

  /** Whether only a shuffle of the query may have the keys of a side. */
  boolean isOnlyShuffled(FilteringSide side) {
    return !side.isBroadcast() && isOnlyShared(side);
  }

  /** Whether keys that only an exchange of the query has may come from a shuffle. Spark itself
      computes the keys of partitions. */
  private boolean fromShuffle(FilteringSide side) {
    return side.canBeShuffled() && !isPartition();
  }

  /**
   * Whether keys are used only if an exchange of the query has them anyway.
   *
   * <p>Otherwise the side is read a second time, which must be cheap, or cheaper than the benefit.
   * The conditions of both tables count. A stream is read once.
   */
  private boolean isOnlyShared(FilteringSide side) {
    if (Repeatability.expensiveReason(side.plan()) != null) return true;
    if (side.nonRepeatableReason() != null || side.plan().isStreaming()) return true;
    SideCost cost = new SideCost(side);
    if (cost.isCheap()) return false;
    boolean isExpensive = !hasBenefit(cost.overhead(), source.bytes());
    // Of two small sides Spark broadcasts the smaller one, which may be the scan.
    long reported = (long) (ReportedSize.fraction(scan) * source.bytes());
    if (side.isBroadcast()) return !hasBenefit(cost.overhead(), reported);
    // Tables are looked up only if that decides.
    if (isExpensive && !hasBenefit(cost.overhead(remaining), source.bytes())) return true;
    return !hasBenefit(cost.overhead(), benefit())
        && !hasBenefit(cost.overhead(remaining), benefit());
  }

  private static boolean hasBenefit(BigInteger overhead, long benefit) {
    return overhead.multiply(BigInteger.TWO).compareTo(BigInteger.valueOf(benefit)) < 0;
  }

  /** Return the bytes that remain of the scan after its own conditions. */
  private long benefit() {
    return (long) (remaining.of(scan, conditions) * source.bytes());
  }

  /** Return what equal lookups have in common. Results from before an index was created or altered
      do not count, nor do those of sides that cannot be read again for those that can. */
  private String shape(FilteringSide side, int copies) {
    String revision = isIndexed(side) ? context.client().revision(source.table()) : "statistics";
    String keys = operands.isEmpty() ? Conditions.shape(key) : TupleRow.shape(key);
    return source.table() + "\n" + revision + "\n" + keys + "\n" + PlanNames.shape(side.plan())
        + "\n" + copies + (side.nonRepeatableReason() == null ? "" : "\nonce");
  }
}
