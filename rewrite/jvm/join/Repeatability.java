package rewrite.jvm.join;

import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UserDefinedExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Average;
import org.apache.spark.sql.catalyst.expressions.aggregate.BitAggregate;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.HyperLogLogPlusPlus;
import org.apache.spark.sql.catalyst.expressions.aggregate.Max;
import org.apache.spark.sql.catalyst.expressions.aggregate.Min;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.BaseEvalPython;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.GlobalLimit;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalLimit;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ObjectProducer;
import org.apache.spark.sql.catalyst.plans.logical.Offset;
import org.apache.spark.sql.catalyst.plans.logical.OneRowRelation;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Range;
import org.apache.spark.sql.catalyst.plans.logical.Sample;
import org.apache.spark.sql.catalyst.plans.logical.ScriptTransformation;
import org.apache.spark.sql.catalyst.plans.logical.Tail;
import org.apache.spark.sql.catalyst.plans.logical.Window;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StringType;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.ValueTypes;
import rewrite.jvm.shims.Sessions;
import rewrite.jvm.shims.Values;
import rewrite.jvm.source.ScanSources;

/**
 * Finds reasons not to compute a plan a second time: it takes long, or may return other rows. Keys
 * of other rows than those that the join reads would lose rows.
 */
final class Repeatability {
  private static final String CODE = "code of the user's";

  private Repeatability() {}

  /** Return the children of a plan; of a cache, the plan that it has the rows of. */
  static List<LogicalPlan> children(LogicalPlan plan) {
    return plan instanceof InMemoryRelation cache
        ? List.of(Sessions.cachedPlan(cache))
        : ScalaInterop.asJava(plan.children());
  }

  /** Return what may take long in a plan even if it reads few bytes, or null. A cache is filled
      only once. */
  static String expensiveReason(LogicalPlan plan) {
    if (plan instanceof Generate) return "a function that makes rows";
    if (hasCode(plan)) return CODE;
    if (plan instanceof Join join && EquiKeys.of(join).isEmpty()) {
      return "a join of each row with each";
    }
    return ScalaInterop.findFirst(plan.children(), Repeatability::expensiveReason);
  }

  /** Whether a node calls a function of the user, in Python or Scala. */
  private static boolean hasCode(LogicalPlan plan) {
    return plan instanceof ScriptTransformation || plan instanceof ObjectProducer
        || plan.expressions().exists(e -> e.exists(UserDefinedExpression.class::isInstance));
  }

  /** Whether a node leaves out rows, and their order decides which. */
  static boolean isLimit(LogicalPlan plan) {
    return plan instanceof GlobalLimit || plan instanceof LocalLimit || plan instanceof Offset
        || plan instanceof Tail || plan instanceof Sample;
  }

  /** Whether a plan has nothing random, nor have the plans of its caches: an evicted cache is
      computed again. */
  static boolean isDeterministic(LogicalPlan plan) {
    return plan.resolved() && plan.deterministic()
        && ScalaInterop.asJava(plan.collectLeaves()).stream()
            .allMatch(
                leaf ->
                    !(leaf instanceof InMemoryRelation cache)
                        || isDeterministic(Sessions.cachedPlan(cache)));
  }

  /**
   * Return what in a plan may give other rows when it is computed again, or null. Ties decide the
   * rows of a LIMIT or a window, the code behind an RDD is unknown, and somebody may write to a
   * table between two reads.
   *
   * <p>Files that Spark has listed, and caches, are repeatable if too few keys only lose rows, as
   * if the filtering side had been read a moment before. If `needsExactRows`, files are not, and a
   * cache only if it was computed from snapshots: Spark computes evicted parts of it again.
   */
  static String nonRepeatableReason(LogicalPlan plan, boolean needsExactRows) {
    return nonRepeatableReason(plan, needsExactRows, false);
  }

  /** `isCached`: a cache has the rows, or will have them before they are read again. */
  private static String nonRepeatableReason(
      LogicalPlan plan, boolean needsExactRows, boolean isCached) {
    if (isLimit(plan)) return "a LIMIT or a sample";
    if (plan instanceof Window) return "a window";
    if (plan instanceof LogicalRDD rdd && !rdd.rdd().isCheckpointed()) return "rows of an RDD";
    if (hasCode(plan) && !isRowByRow(plan)) return CODE;
    if (plan.expressions().exists(e -> e.exists(Repeatability::isInexactAggregate))) {
      return "an aggregate that may give other values of the same rows";
    }
    if (plan instanceof Aggregate aggregate
        && aggregate.groupingExpressions()
            .exists(e -> e.dataType().existsRecursively(Repeatability::isOfAnyCase))) {
      return "groups of equal texts, and any of them may stand for all";
    }
    if (plan.children().isEmpty() && !isCached && !isRepeatable(plan, needsExactRows)) {
      return "a table that may change between two reads";
    }
    boolean areCached = isCached || plan instanceof InMemoryRelation;
    return Stream.concat(
            children(plan).stream(),
            ScalaInterop.asJava(plan.subqueries()).stream())
        .map(part -> nonRepeatableReason(part, needsExactRows, areCached))
        .filter(Objects::nonNull)
        .findFirst()
        .orElse(null);
  }

  /** Whether a leaf of a plan returns the same rows again. A stream is read once. */
  private static boolean isRepeatable(LogicalPlan leaf, boolean needsExactRows) {
    if (leaf instanceof InMemoryRelation cache) {
      if (!needsExactRows) return true;
      LogicalPlan read = findReadPlan(cache);
      return read != null && nonRepeatableReason(read, true) == null;
    }
    return leaf instanceof LocalRelation || leaf instanceof Range || leaf instanceof OneRowRelation
        || Sessions.isEmpty(leaf) || leaf instanceof LogicalRDD
        || leaf.isStreaming() || ScanSources.isSnapshot(leaf)
        || !needsExactRows && ScanSources.isListed(leaf);
  }

  /** Return the plan by which Spark reads the tables of a cache, with the snapshots that it has
      chosen, or null. (The cache's logical plan is from before they are chosen.) */
  private static LogicalPlan findReadPlan(InMemoryRelation cache) {
    SparkPlan plan = cache.cacheBuilder().cachedPlan();
    while (plan.logicalLink().isEmpty()) {
      if (plan instanceof AdaptiveSparkPlanExec adaptive) {
        plan = adaptive.inputPlan();
      } else if (plan.children().size() == 1) { // such as WholeStageCodegen
        plan = plan.children().head();
      } else {
        return null;
      }
    }
    return plan.logicalLink().get();
  }

  /** Whether an expression is an aggregate that may return another value of the same rows: the
      order of the rows may decide, or chance, or the order in which floating point is summed. */
  private static boolean isInexactAggregate(Expression e) {
    return e instanceof AggregateFunction aggregate && !isExact(aggregate);
  }

  private static boolean isExact(AggregateFunction aggregate) {
    if (aggregate instanceof Count || aggregate instanceof BitAggregate
        || aggregate instanceof HyperLogLogPlusPlus) {
      return true;
    }
    if (aggregate.children().size() != 1) return false;
    DataType type = aggregate.children().head().dataType();
    if (aggregate instanceof Min || aggregate instanceof Max) {
      // Values may be equal and yet differ: 0.0 and -0.0; texts in any case.
      return !type.existsRecursively(each -> ValueTypes.isFloating(each) || isOfAnyCase(each));
    }
    // The average of integers is computed in floating point.
    return aggregate instanceof Sum && !ValueTypes.isFloating(type)
        || aggregate instanceof Average && type instanceof DecimalType;
  }

  /** Whether texts of a type may be equal and yet differ. If they are grouped, any may be in the
      result. Of 0.0 and -0.0 it is always the same, because Spark normalises them before. */
  private static boolean isOfAnyCase(DataType type) {
    return type instanceof StringType text && !Values.areEqualByBytes(text);
  }

  /** Whether a node evaluates functions of one row, which declare it if they are random. */
  private static boolean isRowByRow(LogicalPlan plan) {
    return plan instanceof Project || plan instanceof Filter || plan instanceof Join
        || plan instanceof BaseEvalPython;
  }
}
