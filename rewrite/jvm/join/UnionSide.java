package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$;
import org.apache.spark.sql.catalyst.plans.ExistenceJoin;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.types.Metadata;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.ListedValues;
import rewrite.jvm.shims.Nodes;

/**
 * The keys of a condition with OR whose every leg says which ones a row may have: those of all
 * legs together.
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
final class UnionSide extends BuildSide {
  private final Expression column;
  private final Set joins;

  private UnionSide(Expression column, Set joins, LogicalPlan plan, Attribute key) {
    super(plan, Collections.singletonList(key), 0, false);
    this.column = column;
    this.joins = joins;
  }

  /** The types of the existence joins that have the keys: each is of one join. */
  Set joins() {
    return joins;
  }

  /** What has to be one of the keys. */
  Expression column() {
    return column;
  }

  /** Spark broadcasts its parts. */
  public boolean isBroadcast() {
    return false;
  }

  /** Those of a filter's conditions. */
  static List of(Filter filter) {
    List out = new ArrayList();
    Map joins = new HashMap();
    addJoins(filter.child(), joins);
    if (joins.isEmpty()) return out;
    List conditions = Conditions.conjuncts(filter.condition());
    for (int i = 0; i < conditions.size(); i++) {
      if (!(conditions.get(i) instanceof Or)) continue;
      List legs = Conditions.flatten((Or) conditions.get(i));
      List columns = columns((Expression) legs.get(0), joins);
      for (int j = 0; j < columns.size(); j++) {
        Legs keys = new Legs((Expression) columns.get(j), joins);
        if (keys.addAll(legs)) out.add(keys.union());
      }
    }
    return out;
  }

  /** The existence joins below a filter, by what they give a row. */
  private static void addJoins(LogicalPlan plan, Map joins) {
    while (true) {
      if (plan instanceof Join && ((Join) plan).joinType() instanceof ExistenceJoin) {
        joins.put(((ExistenceJoin) ((Join) plan).joinType()).exists().exprId(), plan);
        plan = ((Join) plan).left();
      } else if (plan instanceof Project || plan instanceof Filter) {
        plan = plan.children().apply(0);
      } else {
        return;
      }
    }
  }

  /** What a leg says something of: columns that have keys. */
  private static List columns(Expression leg, Map joins) {
    List out = new ArrayList();
    List conditions = Conditions.conjuncts(leg);
    for (int i = 0; i < conditions.size(); i++) {
      Expression condition = (Expression) conditions.get(i);
      if (values(condition) != null) out.add(subject(condition));
      Join join = join(condition, joins);
      if (join != null) out.addAll(keys(join, true));
    }
    return out;
  }

  /** One side's keys of a join; none where it has no equality. */
  private static List keys(Join join, boolean left) {
    scala.Option equal = ExtractEquiJoinKeys$.MODULE$.unapply(join);
    return equal.isEmpty() ? new ArrayList() : EquiJoins.keys(equal, left);
  }

  private static Join join(Expression condition, Map joins) {
    return condition instanceof Attribute
        ? (Join) joins.get(((Attribute) condition).exprId())
        : null;
  }

  /** The values of `k = 5` and `k IN (5, 6)`; null: a condition is neither. */
  private static List values(Expression condition) {
    if (!(condition instanceof EqualTo)) return ListedValues.in(condition);
    Expression value = ((EqualTo) condition).right();
    if (!(value instanceof Literal)) value = ((EqualTo) condition).left();
    return value instanceof Literal
        ? new ArrayList(Collections.singletonList(((Literal) value).value()))
        : null;
  }

  private static Expression subject(Expression condition) {
    Expression first = condition.children().apply(0);
    return first instanceof Literal ? condition.children().apply(1) : first;
  }

  /** The keys that the legs of one OR have for one column. */
  private static final class Legs {
    private final Expression column;
    private final Map joins;
    private final Set used = new HashSet();
    private final List plans = new ArrayList();
    private final List values = new ArrayList();

    Legs(Expression column, Map joins) {
      this.column = column;
      this.joins = joins;
    }

    /** False: one of the legs leaves other keys, or there are only values. */
    boolean addAll(List legs) {
      for (int i = 0; i < legs.size(); i++) {
        if (!add(Conditions.conjuncts((Expression) legs.get(i)))) return false;
      }
      return !plans.isEmpty();
    }

    /** Adds those of one leg: what any of its conditions says is enough. */
    private boolean add(List conditions) {
      for (int i = 0; i < conditions.size(); i++) {
        Expression condition = (Expression) conditions.get(i);
        List listed = values(condition);
        boolean isOwn = listed != null && subject(condition).semanticEquals(column);
        if (isOwn) return values.addAll(listed);
        Join join = join(condition, joins);
        if (join != null && add(join)) return true;
      }
      return false;
    }

    private boolean add(Join join) {
      List own = keys(join, true);
      List others = keys(join, false);
      for (int i = 0; i < own.size(); i++) {
        // Spark runs the rule until nothing changes: a column that is made here would be another.
        if (!(others.get(i) instanceof Attribute)) continue;
        if (!((Expression) own.get(i)).semanticEquals(column)) continue;
        List one = Collections.singletonList(others.get(i));
        used.add(join.joinType());
        return plans.add(new Project(ScalaInterop.asScala(one), join.right()));
      }
      return false;
    }

    UnionSide union() {
      // A union has the columns of its first child.
      Attribute key = ((LogicalPlan) plans.get(0)).output().apply(0);
      List all = new ArrayList(plans);
      if (!values.isEmpty()) all.add(given(key));
      return new UnionSide(column, used, new Union(ScalaInterop.asScala(all), false, false), key);
    }

    private LocalRelation given(Attribute key) {
      List rows = new ArrayList();
      for (int i = 0; i < values.size(); i++) {
        rows.add(new GenericInternalRow(new Object[] {values.get(i)}));
      }
      Attribute output =
          new AttributeReference(
              key.name(), key.dataType(), true, Metadata.empty(),
              NamedExpression$.MODULE$.newExprId(), ScalaInterop.asScala(new ArrayList()));
      return Nodes.relation(
          ScalaInterop.asScala(Collections.singletonList(output)), ScalaInterop.asScala(rows));
    }
  }
}
