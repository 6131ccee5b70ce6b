package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.NullsFirst$;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.TakeOrderedAndProjectExec;

/** `WHERE ... ORDER BY column LIMIT n` of a scan: what is ordered first, and how many rows are
    wanted. */
public final class TopRows {
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
   * <p>Where rows are joined, how many are left of a file is not known. Of floating point nothing
   * is: NaN is the greatest value, and not within bounds. Further columns of the order only decide
   * between rows that are alike in the first.
   */
  public static TopRows of(SparkPlan plan) {
    if (!(plan instanceof TakeOrderedAndProjectExec)) return null;
    TakeOrderedAndProjectExec top = (TakeOrderedAndProjectExec) plan;
    SortOrder order = (SortOrder) top.sortOrder().head();
    if (!(order.child() instanceof AttributeReference)) return null;
    AttributeReference column = (AttributeReference) order.child();
    if (ValueTypes.isFloating(column.dataType())) return null;
    List all = new ArrayList();
    SparkPlan below = (SparkPlan) top.children().apply(0);
    while (below instanceof ProjectExec || below instanceof FilterExec) {
      if (below instanceof FilterExec) {
        all.addAll(Conditions.conjuncts(((FilterExec) below).condition()));
      }
      below = (SparkPlan) below.children().apply(0);
    }
    if (!below.children().isEmpty() || !below.outputSet().contains(column)) return null;
    List conditions = new ArrayList();
    boolean hasNoNulls = false;
    for (int i = 0; i < all.size(); i++) {
      Expression condition = (Expression) all.get(i);
      boolean isThere = condition instanceof IsNotNull;
      if (!isThere && !(condition instanceof BinaryComparison)) return null;
      // A column that is made on the way may have the name of one of the table's.
      if (!condition.references().subsetOf(below.outputSet())) return null;
      boolean isOwn = condition.references().contains(column);
      hasNoNulls |= isOwn && !(condition instanceof EqualNullSafe);
      if (!isOwn || !isThere) conditions.add(condition);
    }
    long rows = (long) top.limit() + Math.max(0, top.offset());
    return new TopRows(order, below, rows, conditions, hasNoNulls);
  }

  /** The node that reads the table. */
  public SparkPlan scan() {
    return scan;
  }

  public Attribute column() {
    return (Attribute) order.child();
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
    return "ORDER BY " + Conditions.shape(column()) + (isAscending() ? "" : " DESC") + " LIMIT ?";
  }
}
