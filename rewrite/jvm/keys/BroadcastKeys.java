package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.BaseSubqueryExec;
import org.apache.spark.sql.execution.InSubqueryExec;
import org.apache.spark.sql.execution.ReusedSubqueryExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SubqueryBroadcastExec;
import org.apache.spark.sql.execution.joins.BroadcastHashJoinExec;
import org.apache.spark.sql.execution.joins.HashJoin$;
import org.apache.spark.sql.execution.joins.HashedRelation;
import org.apache.spark.sql.execution.joins.LongHashedRelation;
import org.apache.spark.sql.types.DataType;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.DynamicKeys;

/** The keys in the hash table of a broadcast join. Reads them as SubqueryBroadcastExec does, but
    with a limit, several columns at a time, and without its thread pool. */
record BroadcastKeys(SubqueryBroadcastExec subquery) {
  /** Return the keys of a filter; null if Spark does not broadcast its filtering side. */
  static BroadcastKeys of(InSubqueryExec filter) {
    return subquery(filter) instanceof SubqueryBroadcastExec subquery
        ? new BroadcastKeys(subquery)
        : null;
  }

  /** Return the subquery of a filter, without the node that stands for an equal one. */
  static BaseSubqueryExec subquery(InSubqueryExec filter) {
    return filter.plan() instanceof ReusedSubqueryExec reused ? reused.child() : filter.plan();
  }

  /** Return the position of the filter's key among the keys of the join. */
  int index() {
    return DynamicKeys.index(subquery);
  }

  DataType type(int index) {
    return subquery.buildKeys().apply(index).dataType();
  }

  /** Whether both read one hash table. */
  boolean hasSameTable(BroadcastKeys other) {
    return subquery.buildKeys().equals(other.subquery.buildKeys())
        && plan().sameResult(other.plan());
  }

  /** Whether each join above a scan with these keys, and at least one, uses this very broadcast,
      not another broadcast of an equal plan. */
  boolean isJoined(SparkPlan stage, SparkPlan scan) {
    boolean isJoined = false;
    for (SparkPlan part = stage; part != scan; ) {
      if (part instanceof BroadcastHashJoinExec join
          && join.buildKeys().equals(subquery.buildKeys())) {
        if (join.buildPlan().executeBroadcast().id() != plan().executeBroadcast().id()) {
          return false;
        }
        isJoined = true;
      }
      part =
          ScalaInterop.asJava(part.children()).stream()
              .filter(child -> child.exists(node -> node == scan))
              .reduce((first, last) -> last)
              .orElse(null);
      if (part == null) return false;
    }
    return isJoined;
  }

  private SparkPlan plan() {
    return subquery.child();
  }

  /** Return the distinct rows of the keys at some positions; null if there are more than `maxRows`,
      or more than fit into `maxBytes`. */
  Set<InternalRow> rows(List<Integer> indices, int maxRows, long maxBytes) {
    HashedRelation relation = (HashedRelation) plan().executeBroadcast().value();
    Set<InternalRow> out = new LinkedHashSet<>();
    if (relation.getClass().getSimpleName().startsWith("EmptyHashedRelation")) return out;
    List<Expression> columns = new ArrayList<>();
    List<KeyBytes> bytes = new ArrayList<>();
    for (int index : indices) {
      bytes.add(new KeyBytes(type(index), maxBytes));
      columns.add(
          relation instanceof LongHashedRelation
              ? HashJoin$.MODULE$.extractKeyExprAt(subquery.buildKeys(), index)
              : new BoundReference(index, type(index), true));
    }
    UnsafeProjection project = UnsafeProjection$.MODULE$.create(ScalaInterop.asScala(columns));
    scala.collection.Iterator<InternalRow> keys = relation.keys();
    while (keys.hasNext()) {
      UnsafeRow row = project.apply(keys.next());
      if (out.contains(row)) continue;
      for (int i = 0; i < bytes.size(); i++) {
        if (!bytes.get(i).fits(row.get(i, type(indices.get(i))))) return null;
      }
      out.add(row.copy());
      if (out.size() > maxRows) return null;
    }
    return out;
  }
}
