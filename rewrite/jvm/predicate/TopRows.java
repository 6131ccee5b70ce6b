package rewrite.jvm.predicate;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.NullsFirst$;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.TakeOrderedAndProjectExec;

/** `ORDER BY column LIMIT n` of a scan: what is ordered first, and how many rows are wanted. */
public final class TopRows {
  private final SortOrder order;
  private final SparkPlan scan;
  private final long rows;
  private final boolean nullsFirst;

  private TopRows(SortOrder order, SparkPlan scan, long rows, boolean nullsFirst) {
    this.order = order;
    this.scan = scan;
    this.rows = rows;
    this.nullsFirst = nullsFirst;
  }

  /**
   * What a plan wants of the scan below; null: not that, or no file can be ruled out for it.
   *
   * <p>Where rows are filtered, or joined, how many are left of a file is not known. Of floating
   * point nothing is: NaN is the greatest value, and not within bounds. Further columns of the
   * order only decide between rows that are alike in the first.
   */
  public static TopRows of(SparkPlan plan) {
    if (!(plan instanceof TakeOrderedAndProjectExec)) return null;
    TakeOrderedAndProjectExec top = (TakeOrderedAndProjectExec) plan;
    SortOrder order = (SortOrder) top.sortOrder().head();
    if (!(order.child() instanceof AttributeReference)) return null;
    AttributeReference column = (AttributeReference) order.child();
    if (ValueTypes.isFloating(column.dataType())) return null;
    boolean nullsFirst = order.nullOrdering() == NullsFirst$.MODULE$;
    SparkPlan below = (SparkPlan) top.children().apply(0);
    while (below instanceof ProjectExec || below instanceof FilterExec) {
      if (below instanceof FilterExec && !isThere((FilterExec) below, column)) return null;
      nullsFirst &= below instanceof ProjectExec;
      below = (SparkPlan) below.children().apply(0);
    }
    if (!below.children().isEmpty() || !below.outputSet().contains(column)) return null;
    return new TopRows(order, below, (long) top.limit() + Math.max(0, top.offset()), nullsFirst);
  }

  /** Whether a filter only drops rows without a value of the column. */
  private static boolean isThere(FilterExec filter, Attribute column) {
    List conditions = Conditions.conjuncts(filter.condition());
    for (int i = 0; i < conditions.size(); i++) {
      Object condition = conditions.get(i);
      boolean isThere =
          condition instanceof IsNotNull && column.semanticEquals(((IsNotNull) condition).child());
      if (!isThere) return false;
    }
    return true;
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
    return nullsFirst;
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
