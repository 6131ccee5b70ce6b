package rewrite.jvm.join;

import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.InnerLike;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.RightOuter$;

/** What each type of join does with rows without a partner. */
final class JoinTypes {
  private JoinTypes() {}

  static String name(JoinType type) {
    // Spark has no name for a join that stays below an OR or in a column.
    return type instanceof ExistenceJoin
        ? "an IN or EXISTS beside an OR"
        : "a " + type.sql() + " JOIN";
  }

  /** Whether the result depends on rows without a partner. */
  static boolean keepsPartnerless(JoinType type) {
    return !(type instanceof InnerLike) && type != LeftSemi$.MODULE$;
  }

  /** Whether a side may lose rows without a partner. The right side of an anti join is looked up: a
      row that equals no row of the left side removes none. (`NOT IN` has equal keys only if neither
      side is ever null.) */
  static boolean canLose(JoinType type, boolean isLeft) {
    if (type instanceof InnerLike || type == LeftSemi$.MODULE$) return true;
    return isLeft
        ? type == RightOuter$.MODULE$
        : type == LeftAnti$.MODULE$ || type == LeftOuter$.MODULE$ || type instanceof ExistenceJoin;
  }

  /** Whether rows that a side loses are the only ones that the join loses. */
  static boolean passes(JoinType type, boolean isLeft) {
    if (type instanceof InnerLike) return true;
    return isLeft
        ? type == LeftOuter$.MODULE$ || type == LeftSemi$.MODULE$ || type == LeftAnti$.MODULE$
            || type instanceof ExistenceJoin
        : type == RightOuter$.MODULE$;
  }
}
