package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SubqueryBroadcastExec;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import org.apache.spark.sql.execution.joins.HashJoin$;
import org.apache.spark.sql.execution.joins.HashedRelation;
import org.apache.spark.sql.execution.joins.LongHashedRelation;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.DynamicKeys;

/** The keys of the table that a broadcast join looks its rows up in. As SubqueryBroadcastExec reads
    them, but with a bound, several columns at a time, and without its thread pool. */
final class BroadcastKeys {
  private final SubqueryBroadcastExec subquery;

  BroadcastKeys(SubqueryBroadcastExec subquery) {
    this.subquery = subquery;
  }

  /** Which of the join's keys it stands for. */
  int index() {
    return DynamicKeys.index(subquery);
  }

  /** The type of a key. */
  org.apache.spark.sql.types.DataType type(int index) {
    return subquery.buildKeys().apply(index).dataType();
  }

  /** Whether both read one table. */
  boolean isOf(BroadcastKeys other) {
    return subquery.buildKeys().equals(other.subquery.buildKeys())
        && plan().sameResult(other.plan());
  }

  /** Whether each join above a scan that has these keys, of which there is one at least, looks its
      rows up in this very table: not in one that was made in the same way. */
  boolean isJoined(SparkPlan stage, SparkPlan scan) {
    boolean found = false;
    for (SparkPlan part = stage; part != scan; ) {
      if (part instanceof BroadcastHashJoinExec) {
        BroadcastHashJoinExec join = (BroadcastHashJoinExec) part;
        if (join.buildKeys().equals(subquery.buildKeys())) {
          if (join.buildPlan().executeBroadcast().id() != plan().executeBroadcast().id()) {
            return false;
          }
          found = true;
        }
      }
      SparkPlan next = null;
      List children = ScalaInterop.asJava(part.children());
      for (int i = 0; i < children.size(); i++) {
        SparkPlan child = (SparkPlan) children.get(i);
        if (child.exists(new Is(scan))) next = child;
      }
      if (next == null) return false;
      part = next;
    }
    return found;
  }

  /** Whether a node is this one, not only an equal one. */
  private static final class Is extends scala.runtime.AbstractFunction1 {
    private final SparkPlan node;

    Is(SparkPlan node) {
      this.node = node;
    }

    public Object apply(Object other) {
      return Boolean.valueOf(other == node);
    }
  }

  private SparkPlan plan() {
    return subquery.child();
  }

  /** The distinct rows of these keys; null if there are more than `most`, or than fit into so many
      bytes. */
  Collection rows(List indices, int most, long maxBytes) {
    HashedRelation relation = (HashedRelation) plan().executeBroadcast().value();
    LinkedHashSet out = new LinkedHashSet();
    if (relation.getClass().getSimpleName().startsWith("EmptyHashedRelation")) return out;
    List columns = new ArrayList();
    KeyBytes[] bytes = new KeyBytes[indices.size()];
    for (int i = 0; i < indices.size(); i++) {
      int index = ((Integer) indices.get(i)).intValue();
      bytes[i] = new KeyBytes(type(index), maxBytes);
      columns.add(
          relation instanceof LongHashedRelation
              ? HashJoin$.MODULE$.extractKeyExprAt(subquery.buildKeys(), index)
              : new BoundReference(index, type(index), true));
    }
    UnsafeProjection project = UnsafeProjection$.MODULE$.create(ScalaInterop.asScala(columns));
    scala.collection.Iterator keys = relation.keys();
    while (keys.hasNext()) {
      UnsafeRow row = project.apply((InternalRow) keys.next());
      if (out.contains(row)) continue;
      for (int i = 0; i < bytes.length; i++) {
        if (!bytes[i].fits(row.get(i, type(((Integer) indices.get(i)).intValue())))) return null;
      }
      out.add(row.copy());
      if (out.size() > most) return null;
    }
    return out;
  }
}
