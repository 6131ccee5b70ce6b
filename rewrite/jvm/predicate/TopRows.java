package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.NullsFirst$;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.RightOuter$;
import org.apache.spark.sql.execution.CollectLimitExec;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.LocalLimitExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.TakeOrderedAndProjectExec;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;

/** `WHERE ... [ORDER BY column] LIMIT n` of a scan: what is ordered first, and how many rows are
    wanted. */
public final class TopRows {
  private static final String IS_DELETED = "__delta_internal_is_row_deleted";

  private final SortOrder order;
  private final SparkPlan scan;
  private final long rows;
  private final List conditions;
  private final boolean hasNoNulls;

  private TopRows(
      SortOrder order, SparkPlan scan, long rows, List conditions, boolean hasNoNulls) {
    this.order = order;
    this.scan = scan;
    this.rows = rows;
    this.conditions = conditions;
    this.hasNoNulls = hasNoNulls;
  }

  /**
   * What a plan wants of the scan below; null: not that, or no file can be ruled out for it.
   *
   * <p>Where a join drops rows, how many are left of a file is not known. Of floating point nothing
   * is: NaN is the greatest value, and not within bounds. Further columns of the order only decide
   * between rows that are alike in the first.
   *
   * <p>Without an order any rows will do, but only of an answer: what reads the same LIMIT twice, as
   * MERGE does of its source, counts on the same rows. Without conditions Spark stops at the first
   * files by itself.
   */
  public static TopRows of(SparkPlan plan) {
    if (plan instanceof CollectLimitExec) {
      CollectLimitExec some = (CollectLimitExec) plan;
      TopRows top = some.limit() < 1 ? null : of(plan, null, some.limit());
      return top == null || top.conditions.isEmpty() ? null : top;
    }
    if (!(plan instanceof TakeOrderedAndProjectExec)) return null;
    TakeOrderedAndProjectExec top = (TakeOrderedAndProjectExec) plan;
    SortOrder order = top.sortOrder().head();
    boolean isColumn = order.child() instanceof AttributeReference;
    return isColumn && !ValueTypes.isFloating(order.child().dataType())
        ? of(plan, order, top.limit())
        : null;
  }

  /** `rows` includes those that an OFFSET leaves out. */
  private static TopRows of(SparkPlan plan, SortOrder order, int rows) {
    List all = new ArrayList();
    SparkPlan below = null;
    // Another limit on the way drops rows, and so all of a file, whatever it orders by.
    SparkPlan next = plan.children().apply(0);
    for (; next != null; next = below(next, order == null)) {
      if (next instanceof FilterExec) {
        all.addAll(Conditions.conjuncts(((FilterExec) next).condition()));
      }
      below = next;
    }
    if (!below.children().isEmpty()) return null;
    Attribute column = order == null ? null : (Attribute) order.child();
    if (column != null && !below.outputSet().contains(column)) return null;
    List conditions = new ArrayList();
    boolean hasNoNulls = false;
    for (int i = 0; i < all.size(); i++) {
      Expression condition = (Expression) all.get(i);
      if (isOfDeletes(condition)) continue;
      boolean isThere = condition instanceof IsNotNull;
      if (!isThere && !(condition instanceof BinaryComparison)) return null;
      // A column that is made on the way may have the name of one of the table's.
      if (!condition.references().subsetOf(below.outputSet())) return null;
      boolean isOwn = column != null && condition.references().contains(column);
      hasNoNulls |= isOwn && !(condition instanceof EqualNullSafe);
      if (!isOwn || !isThere) conditions.add(condition);
    }
    return new TopRows(order, below, rows, conditions, hasNoNulls);
  }

  /** Whether a condition is Delta's own, that a row is not deleted: those that are do not count
      as rows of a file. */
  private static boolean isOfDeletes(Expression condition) {
    if (!(condition instanceof EqualTo)) return false;
    Expression column = ((EqualTo) condition).left();
    return column instanceof AttributeReference
        && ((AttributeReference) column).name().equals(IS_DELETED);
  }

  /** What a node has its rows from, if none is lost on the way but by a filter; else null. */
  private static SparkPlan below(SparkPlan plan, boolean isUnordered) {
    int side = 0;
    if (plan instanceof BroadcastHashJoinExec) {
      JoinType type = ((BroadcastHashJoinExec) plan).joinType();
      boolean isLeft = type == LeftOuter$.MODULE$ || type instanceof ExistenceJoin;
      if (!isLeft && type != RightOuter$.MODULE$) return null;
      side = isLeft ? 0 : 1;
    } else if (!(plan instanceof ProjectExec || plan instanceof FilterExec
        || isUnordered && plan instanceof LocalLimitExec)) {
      return null;
    }
    return plan.children().apply(side);
  }

  /** The node that reads the table. */
  public SparkPlan scan() {
    return scan;
  }

  /** What is ordered first; null: any rows will do. */
  public Attribute column() {
    return order == null ? null : (Attribute) order.child();
  }

  public boolean isAscending() {
    return order.direction() == Ascending$.MODULE$;
  }

  /** Whether rows without a value come first; false also where they are filtered. */
  public boolean nullsFirst() {
    return order.nullOrdering() == NullsFirst$.MODULE$ && !hasNoNulls;
  }

  /** What the rows are filtered by, other than that the column has a value. */
  public List conditions() {
    return conditions;
  }

  /** How many rows are wanted. */
  public long rows() {
    return rows;
  }

  /** In words, for explain. */
  public String toString() {
    if (order == null) return "LIMIT ?";
    return "ORDER BY " + Conditions.shape(column()) + (isAscending() ? "" : " DESC") + " LIMIT ?";
  }
}
