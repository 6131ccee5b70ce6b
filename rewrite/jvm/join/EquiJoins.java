package rewrite.jvm.join;

import java.util.List;
import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.InnerLike;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.LeftAnti$;
import org.apache.spark.sql.catalyst.plans.LeftOuter$;
import org.apache.spark.sql.catalyst.plans.LeftSemi$;
import org.apache.spark.sql.catalyst.plans.RightOuter$;
import rewrite.jvm.bridge.ScalaInterop;

/** Joins on equal keys: the keys, and the sides that may lose rows without a partner. */
final class EquiJoins {
  private EquiJoins() {}

  /** One side's keys of what ExtractEquiJoinKeys found. */
  static List keys(scala.Option found, boolean left) {
    scala.Tuple8 parts = (scala.Tuple8) found.get();
    return ScalaInterop.asJava((scala.collection.Iterable) (left ? parts._2() : parts._3()));
  }

  /** What a join is called, for people. */
  static String name(JoinType type) {
    // Of one that stays below an OR or in a column Spark knows no name.
    return type instanceof ExistenceJoin
        ? "an IN or EXISTS beside an OR"
        : "a " + type.sql() + " JOIN";
  }

  /** Whether a join says something of rows that have no partner. */
  static boolean keepsPartnerless(JoinType type) {
    return !(type instanceof InnerLike) && type != LeftSemi$.MODULE$;
  }

  /** Whether the left side of a join may lose rows without a partner. */
  static boolean leftLoses(JoinType type) {
    return type instanceof InnerLike || type == LeftSemi$.MODULE$ || type == RightOuter$.MODULE$;
  }

  /** The same of the right side. Of an anti join that is what is looked up: a row that equals none
      on the left takes none away. (`NOT IN` has no equal keys unless neither side is ever null.) */
  static boolean rightLoses(JoinType type) {
    return type instanceof InnerLike
        || type == LeftSemi$.MODULE$
        || type == LeftAnti$.MODULE$
        || type == LeftOuter$.MODULE$
        || type instanceof ExistenceJoin;
  }
}
