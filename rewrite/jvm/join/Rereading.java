package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
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
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$;
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
 * What speaks against computing a plan a second time: that it takes long, or that it may give other
 * rows. Keys of other rows than those that the join sees would lose rows.
 */
final class Rereading {
  private static final String CODE = "code of the user's";

  private Rereading() {}

  /** What a cache holds the rows of. */
  static LogicalPlan cached(LogicalPlan cache) {
    return Sessions.cached((InMemoryRelation) cache);
  }

  /** Its children; of a cache, what it was made of. */
  static List inside(LogicalPlan plan) {
    return plan instanceof InMemoryRelation
        ? Collections.singletonList(cached(plan))
        : ScalaInterop.asJava(plan.children());
  }

  /** What in a plan may take long however few bytes it reads; null: nothing. A cache is filled
      once, whoever reads it first. */
  static String slow(LogicalPlan plan) {
    if (plan instanceof Generate) return "a function that makes rows";
    if (holdsCode(plan)) return CODE;
    if (plan instanceof Join && ExtractEquiJoinKeys$.MODULE$.unapply((Join) plan).isEmpty()) {
      return "a join of each row with each";
    }
    List children = ScalaInterop.asJava(plan.children());
    for (int i = 0; i < children.size(); i++) {
      String slow = slow((LogicalPlan) children.get(i));
      if (slow != null) return slow;
    }
    return null;
  }

  private static boolean holdsCode(LogicalPlan plan) {
    if (plan instanceof ScriptTransformation || plan instanceof ObjectProducer) return true;
    List expressions = ScalaInterop.asJava(plan.expressions());
    for (int i = 0; i < expressions.size(); i++) {
      if (((Expression) expressions.get(i)).exists(new IsCode())) return true;
    }
    return false;
  }

  /** Whether an expression is a user's function, in Python or Scala. */
  private static final class IsCode extends scala.runtime.AbstractFunction1 {
    public Object apply(Object expression) {
      return Boolean.valueOf(expression instanceof UserDefinedExpression);
    }
  }

  /** Whether a plan leaves out rows, and which is up to the order in which they come. */
  static boolean isLimit(LogicalPlan plan) {
    return plan instanceof GlobalLimit || plan instanceof LocalLimit || plan instanceof Offset
        || plan instanceof Tail || plan instanceof Sample;
  }

  /** Whether a plan has nothing random, nor what its caches were made of: what is evicted is
      computed again. */
  static boolean isDeterministic(LogicalPlan plan) {
    if (!plan.resolved() || !plan.deterministic()) return false;
    List leaves = ScalaInterop.asJava(plan.collectLeaves());
    for (int i = 0; i < leaves.size(); i++) {
      LogicalPlan leaf = (LogicalPlan) leaves.get(i);
      if (leaf instanceof InMemoryRelation && !isDeterministic(cached(leaf))) return false;
    }
    return true;
  }

  /** What in a plan may give other rows when it is computed again; null: nothing. Ties decide what
      a LIMIT or a window gives, what makes the rows of an RDD is not known, and somebody may write
      to a table between two reads.

      Where keys that are too few only lose rows, as if the dimension had been read a moment
      before, files that Spark has listed, and caches, count as what they are. `strict`: they do
      not. */
  static String fleeting(LogicalPlan plan, boolean strict) {
    return fleeting(plan, strict, false);
  }

  /** `isCached`: a cache has been filled with its rows, or is by whoever comes first. */
  private static String fleeting(LogicalPlan plan, boolean strict, boolean isCached) {
    if (isLimit(plan)) return "a LIMIT or a sample";
    if (plan instanceof Window) return "a window";
    if (plan instanceof LogicalRDD && !((LogicalRDD) plan).rdd().isCheckpointed()) {
      return "rows of an RDD";
    }
    if (holdsCode(plan) && !isRowByRow(plan)) return CODE;
    if (plan.expressions().exists(new HasOtherValues())) {
      return "an aggregate that may give other values of the same rows";
    }
    if (plan instanceof Aggregate && groupsEquals((Aggregate) plan)) {
      return "groups of equal texts, of which any may stand for all";
    }
    if (plan.children().isEmpty() && !isCached && !isSettled(plan, strict)) {
      return "a table that may change between two reads";
    }
    isCached |= plan instanceof InMemoryRelation;
    List parts = new ArrayList(inside(plan));
    parts.addAll(ScalaInterop.asJava(plan.subqueries()));
    for (int i = 0; i < parts.size(); i++) {
      String fleeting = fleeting((LogicalPlan) parts.get(i), strict, isCached);
      if (fleeting != null) return fleeting;
    }
    return null;
  }

  /** Whether an aggregate takes texts together that are equal and yet not the same. Of 0.0 and -0.0,
      which Spark makes one before it compares them, it gives the same. */
  private static boolean groupsEquals(Aggregate aggregate) {
    List columns = ScalaInterop.asJava(aggregate.groupingExpressions());
    for (int i = 0; i < columns.size(); i++) {
      DataType type = ((Expression) columns.get(i)).dataType();
      if (type.existsRecursively(new IsOfAnyCase())) return true;
    }
    return false;
  }

  /** Whether a leaf of a plan is known to give the same rows again. A stream's are read once. */
  private static boolean isSettled(LogicalPlan leaf, boolean strict) {
    return leaf instanceof LocalRelation || leaf instanceof Range || leaf instanceof OneRowRelation
        || Sessions.isEmpty(leaf) || leaf instanceof LogicalRDD
        || leaf.isStreaming() || ScanSources.isSnapshot(leaf)
        || !strict && (leaf instanceof InMemoryRelation || ScanSources.isListed(leaf));
  }

  /** Whether an expression has an aggregate that is not known to give the same value of the same
      rows: which come first may decide, or chance, or the order in which floating point is
      summed. */
  private static final class HasOtherValues extends scala.runtime.AbstractFunction1 {
    public Object apply(Object expression) {
      return Boolean.valueOf(((Expression) expression).exists(new GivesOtherValues()));
    }
  }

  private static final class GivesOtherValues extends scala.runtime.AbstractFunction1 {
    public Object apply(Object expression) {
      return Boolean.valueOf(
          expression instanceof AggregateFunction && !isExact((AggregateFunction) expression));
    }

    private static boolean isExact(AggregateFunction aggregate) {
      if (aggregate instanceof Count || aggregate instanceof BitAggregate
          || aggregate instanceof HyperLogLogPlusPlus) {
        return true;
      }
      if (aggregate.children().size() != 1) return false;
      DataType of = aggregate.children().apply(0).dataType();
      if (aggregate instanceof Min || aggregate instanceof Max) {
        return !of.existsRecursively(new HasEquals());
      }
      // Of integers Spark makes the average in floating point.
      return aggregate instanceof Sum && !ValueTypes.isFloating(of)
          || aggregate instanceof Average && of instanceof DecimalType;
    }
  }

  /** Whether values of a type may be equal and yet not the same: 0.0 and -0.0; texts in any
      case. */
  private static final class HasEquals extends scala.runtime.AbstractFunction1 {
    public Object apply(Object type) {
      return Boolean.valueOf(ValueTypes.isFloating((DataType) type) || isOfAnyCase(type));
    }
  }

  private static final class IsOfAnyCase extends scala.runtime.AbstractFunction1 {
    public Object apply(Object type) {
      return Boolean.valueOf(isOfAnyCase(type));
    }
  }

  private static boolean isOfAnyCase(Object type) {
    return type instanceof StringType && !Values.areEqualByBytes((StringType) type);
  }

  /** Whether a plan evaluates functions of one row, which say themselves if they are random. */
  private static boolean isRowByRow(LogicalPlan plan) {
    return plan instanceof Project || plan instanceof Filter || plan instanceof Join
        || plan instanceof BaseEvalPython;
  }
}
