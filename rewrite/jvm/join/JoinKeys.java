package rewrite.jvm.join;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.TupleRow;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.shims.DynamicKeys;

/** The keys of a filtering side, as expressions over its plan, and what is compared with them. */
sealed interface JoinKeys {
  /** All keys of the join. */
  List<Expression> expressions();

  /** The position of the key that a column of the pruning side is compared with. */
  int index();

  default Expression key() {
    return expressions().get(index());
  }

  /** Whether Spark may broadcast the plan in a form that has the keys. */
  default boolean canBeBroadcast() {
    return false;
  }

  /** Whether keys can be compared with an expression of the pruning side. */
  default boolean isComparable(Expression pruningKey) {
    return key().dataType().equals(pruningKey.dataType());
  }

  /** Return what must be one of the keys, in terms of an expression of the pruning side. */
  default Expression toComparable(Expression pruningKey) {
    return pruningKey;
  }

  /** Return the filter of the pruning side. */
  default Expression createFilter(
      Expression pruningKey, LogicalPlan plan, ExprId id, boolean onlyInBroadcast) {
    return DynamicKeys.of(
        toComparable(pruningKey), plan, ScalaInterop.asScala(expressions()), index(),
        onlyInBroadcast, id);
  }

  /** Whether a filter compares an expression of the pruning side with these keys. */
  default boolean areOf(DynamicPruningSubquery filter, Expression pruningKey) {
    List<Expression> keys = ScalaInterop.asJava(filter.buildKeys());
    if (!filter.pruningKey().semanticEquals(toComparable(pruningKey))) return false;
    if (keys.size() != expressions().size() || DynamicKeys.index(filter) != index()) return false;
    for (int i = 0; i < keys.size(); i++) {
      if (!keys.get(i).semanticEquals(expressions().get(i))) return false;
    }
    return true;
  }

  /** Return the same key of a part of the plan. */
  default JoinKeys ofPart() {
    return new EqualKeys(key());
  }

  /** Keys that are equal to columns of the pruning side. */
  record EqualKeys(List<Expression> expressions, int index) implements JoinKeys {
    EqualKeys(Expression key) {
      this(List.of(key), 0);
    }

    @Override public boolean canBeBroadcast() {
      return true;
    }
  }

  /** The key of a union, which has the rows of several plans that Spark broadcasts. */
  record UnionKeys(Attribute attribute) implements JoinKeys {
    @Override public List<Expression> expressions() {
      return List.of(attribute);
    }

    @Override public int index() {
      return 0;
    }
  }

  /** Keys that are rows, which Spark cannot compare: the filter is `true OR ...`, and drops no row where
      it is evaluated. */
  sealed interface RowKeys extends JoinKeys {
    @Override default int index() {
      return 0;
    }

    @Override default Expression createFilter(
        Expression pruningKey, LogicalPlan plan, ExprId id, boolean onlyInBroadcast) {
      return Conditions.setAside(
          JoinKeys.super.createFilter(pruningKey, plan, id, onlyInBroadcast));
    }

    @Override default JoinKeys ofPart() {
      return this;
    }
  }

  /**
   * Keys of several columns; a row of the pruning side needs one: `f.a = d.a OR f.b = d.b`.
   *
   * <p>The filter is `true OR dynamicpruning(row(a, b) IN rows)`; a scan looks each column up alone.
   */
  record OperandKeys(Expression key) implements RowKeys {
    OperandKeys(List<Expression> keys) {
      this(TupleRow.operands(keys));
    }

    @Override public List<Expression> expressions() {
      return List.of(key);
    }
  }

  /**
   * Ranges that have a column of the pruning side: `f.ts BETWEEN d.first AND d.last`.
   *
   * <p>The keys are pairs of ends, and the filter is `true OR dynamicpruning((c, c) IN pairs)`.
   *
   * @param from where a range begins, or null
   * @param to where a range ends, or null
   */
  record RangeKeys(Expression from, Expression to) implements RowKeys {
    @Override public List<Expression> expressions() {
      return List.of(pair(from, to));
    }

    @Override public boolean isComparable(Expression pruningKey) {
      Inversion inversion = Inversion.of(pruningKey);
      boolean hasRanges = inversion == null || inversion.givesRanges();
      return hasRanges && (from == null ? to : from).dataType().equals(pruningKey.dataType());
    }

    @Override public Expression toComparable(Expression pruningKey) {
      return pair(from == null ? null : pruningKey, to == null ? null : pruningKey);
    }

    /** Return a row of ends. Both sides of a comparison must have one type, nulls included. */
    private static Expression pair(Expression from, Expression to) {
      Map<String, Expression> fields = new LinkedHashMap<>();
      if (from != null) fields.put(KeyRanges.FROM, from);
      if (to != null) fields.put(KeyRanges.TO, to);
      return TupleRow.row(fields);
    }
  }
}
