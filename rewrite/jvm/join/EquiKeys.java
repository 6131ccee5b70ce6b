package rewrite.jvm.join;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import rewrite.jvm.bridge.ScalaInterop;

/** The keys of a join that must be equal: those of both sides, in the same order. */
record EquiKeys(List<Expression> left, List<Expression> right) {
  /** Return the keys of a join; empty if it has no equality. */
  static EquiKeys of(Join join) {
    var keys = ExtractEquiJoinKeys$.MODULE$.unapply(join);
    return keys.isEmpty()
        ? new EquiKeys(List.of(), List.of())
        : new EquiKeys(ScalaInterop.asJava(keys.get()._2()), ScalaInterop.asJava(keys.get()._3()));
  }

  List<Expression> of(boolean isLeft) {
    return isLeft ? left : right;
  }

  boolean isEmpty() {
    return left.isEmpty();
  }
}
