package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.JoinType;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.types.Metadata;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.ListedValues;
import rewrite.jvm.shims.Nodes;

/**
 * Finds the keys of conditions with OR in which each operand requires a key of the same column: the
 * keys are those of all operands.
 *
 * <pre>
 *   k IN (SELECT id FROM a) OR k = 5
 *
 *   Filter exists OR k = 5                keys of k: Union
 *   +- Join ExistenceJoin(exists), k = id            :- Project id
 *      :- Relation f                                 :  +- Relation a
 *      +- Relation a                                 +- LocalRelation 5
 * </pre>
 */
final class OrKeys {
  /** Keys of one condition. `joins` are the types of the existence joins that have them: each type
      belongs to one join. */
  record UnitedKeys(Candidate candidate, Set<JoinType> joins) {}

  private final Expression column;
  private final Map<ExprId, Join> joins;
  private final Set<JoinType> used = new HashSet<>();
  private final List<LogicalPlan> plans = new ArrayList<>();
  private final List<Object> values = new ArrayList<>();

  private OrKeys(Expression column, Map<ExprId, Join> joins) {
    this.column = column;
    this.joins = joins;
  }

  /** Return the keys of a filter's conditions. */
  static List<UnitedKeys> of(Filter filter) {
    List<UnitedKeys> out = new ArrayList<>();
    Map<ExprId, Join> joins = findJoins(filter.child());
    if (joins.isEmpty()) return out;
    for (Expression condition : Conditions.conjuncts(filter.condition())) {
      if (!(condition instanceof Or)) continue;
      List<Expression> operands = Conditions.flatten(condition);
      for (Expression column : columns(operands.get(0), joins)) {
        OrKeys keys = new OrKeys(column, joins);
        if (keys.addAll(operands)) out.add(keys.unite());
      }
    }
    return out;
  }

  /** Return the existence joins below a filter, by the attribute that they add. */
  private static Map<ExprId, Join> findJoins(LogicalPlan plan) {
    Map<ExprId, Join> joins = new HashMap<>();
    while (true) {
      if (plan instanceof Join join && join.joinType() instanceof ExistenceJoin type) {
        joins.put(type.exists().exprId(), join);
        plan = join.left();
      } else if (plan instanceof Project || plan instanceof Filter) {
        plan = plan.children().head();
      } else {
        return joins;
      }
    }
  }

  /** Return the columns that an operand has keys of. */
  private static List<Expression> columns(Expression operand, Map<ExprId, Join> joins) {
    List<Expression> out = new ArrayList<>();
    for (Expression condition : Conditions.conjuncts(operand)) {
      if (values(condition) != null) out.add(subject(condition));
      Join join = join(condition, joins);
      if (join != null) out.addAll(EquiKeys.of(join).left());
    }
    return out;
  }

  private static Join join(Expression condition, Map<ExprId, Join> joins) {
    return condition instanceof Attribute attribute ? joins.get(attribute.exprId()) : null;
  }

  /** Return the values of `k = 5` and `k IN (5, 6)`; null for another condition. */
  private static List<Object> values(Expression condition) {
    if (!(condition instanceof EqualTo equal)) return ListedValues.in(condition);
    Expression value = equal.right() instanceof Literal ? equal.right() : equal.left();
    return value instanceof Literal literal ? Collections.singletonList(literal.value()) : null;
  }

  private static Expression subject(Expression condition) {
    Expression first = condition.children().head();
    return first instanceof Literal ? condition.children().apply(1) : first;
  }

  /** Whether each operand requires a key of the column, and there are not only values. */
  private boolean addAll(List<Expression> operands) {
    return operands.stream().allMatch(each -> add(Conditions.conjuncts(each))) && !plans.isEmpty();
  }

  /** Add the keys of the first condition of an operand that requires some: one is enough. */
  private boolean add(List<Expression> conditions) {
    for (Expression condition : conditions) {
      List<Object> listed = values(condition);
      if (listed != null && subject(condition).semanticEquals(column)) {
        return values.addAll(listed);
      }
      Join join = join(condition, joins);
      if (join != null && add(join)) return true;
    }
    return false;
  }

  private boolean add(Join join) {
    EquiKeys keys = EquiKeys.of(join);
    for (int i = 0; i < keys.left().size(); i++) {
      // Spark repeats the rule until nothing changes: a new column would differ each time.
      boolean isOfColumn = keys.left().get(i).semanticEquals(column);
      if (isOfColumn && keys.right().get(i) instanceof Attribute key) {
        used.add(join.joinType());
        return plans.add(new Project(ScalaInterop.asScala(List.of(key)), join.right()));
      }
    }
    return false;
  }

  private UnitedKeys unite() {
    // A union has the columns of its first child.
    Attribute key = plans.get(0).output().head();
    if (!values.isEmpty()) plans.add(relation(key));
    LogicalPlan union = new Union(ScalaInterop.asScala(plans), false, false);
    JoinKeys keys = new JoinKeys.UnionKeys(key);
    return new UnitedKeys(new Candidate(column, new FilteringSide(union, keys)), used);
  }

  private LogicalPlan relation(Attribute key) {
    List<InternalRow> rows =
        values.stream()
            .<InternalRow>map(value -> new GenericInternalRow(new Object[] {value}))
            .toList();
    Attribute output =
        new AttributeReference(
            key.name(), key.dataType(), true, Metadata.empty(),
            NamedExpression$.MODULE$.newExprId(), ScalaInterop.asScala(List.of()));
    return Nodes.relation(ScalaInterop.asScala(List.of(output)), ScalaInterop.asScala(rows));
  }
}
