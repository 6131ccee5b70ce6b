package rewrite.oracle;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.util.TypeUtils$;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.KeyForms;
import rewrite.jvm.predicate.Casts;
import rewrite.jvm.predicate.ColumnResolver;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.ExpressionText;
import rewrite.jvm.predicate.IndexedColumns;
import rewrite.jvm.predicate.Inversion;
import rewrite.jvm.predicate.KeyRanges;
import rewrite.jvm.predicate.KeyValues;
import rewrite.jvm.predicate.PredicateEncoder;
import rewrite.jvm.predicate.ValueTypes;
import rewrite.jvm.source.BoundRule;

/** Evaluates conditions on rows one by one, as Spark does, beside what is asked of an index. */
public final class RowOracle implements ColumnResolver {
  private static final Object FAILED = "a failure";

  private final List rows;
  private final List names;

  /** Over the rows of a frame, whose columns have their names for identities. */
  public RowOracle(Dataset frame) {
    rows = Arrays.asList((Object[]) frame.queryExecution().executedPlan().executeCollect());
    names = Arrays.asList((Object[]) frame.schema().fieldNames());
  }

  public String identity(List path) {
    return MessageWriter.joinPath(path);
  }

  /** The conditions of a filter as they are optimised; null: Spark has no such filter, or one that
      reads no row. */
  public List conditions(Dataset frame, String filter) {
    List out = new ArrayList();
    LogicalPlan plan;
    try {
      plan = frame.filter(filter).queryExecution().optimizedPlan();
    } catch (Exception none) {
      return null;
    }
    while (plan instanceof Project || plan instanceof Filter) {
      if (plan instanceof Filter) out.addAll(0, Conditions.conjuncts(((Filter) plan).condition()));
      plan = (LogicalPlan) plan.children().apply(0);
    }
    boolean reads = !plan.getClass().getSimpleName().equals("LocalRelation");
    return reads ? out : null;
  }

  /** The question that they are. */
  public byte[] question(List conditions, Set expressions) {
    List none = new ArrayList();
    IndexedColumns columns = new IndexedColumns(this, expressions);
    return PredicateEncoder.request("t", columns, conditions, none, none);
  }

  /** Of each row `t` if it meets all conditions, `f` if it does not, `e` if one fails on it. */
  public String outcomes(List conditions) {
    List bound = new ArrayList();
    for (int i = 0; i < conditions.size(); i++) {
      bound.add(bound((Expression) conditions.get(i)));
    }
    StringBuilder out = new StringBuilder();
    for (int i = 0; i < rows.size(); i++) {
      out.append(outcome(bound, (InternalRow) rows.get(i)));
    }
    return out.toString();
  }

  private static char outcome(List bound, InternalRow row) {
    try {
      for (int k = 0; k < bound.size(); k++) {
        if (!Boolean.TRUE.equals(((Expression) bound.get(k)).eval(row))) return 'f';
      }
      return 't';
    } catch (Exception failed) {
      return 'e';
    }
  }

  private Expression bound(Expression e) {
    if (e instanceof AttributeReference) {
      int at = names.indexOf(((AttributeReference) e).name());
      return new BoundReference(at, e.dataType(), true);
    }
    List children = ScalaInterop.asJava(e.children());
    for (int i = 0; i < children.size(); i++) {
      children.set(i, bound((Expression) children.get(i)));
    }
    return (Expression) e.withNewChildren(ScalaInterop.asScala(children));
  }

  /** What BoundRule makes of each row, whose two columns are the bounds of a column of a type, as
      texts; null: nothing. */
  public List widened(String format, String what, String type) {
    DataType own = org.apache.spark.sql.types.DataType$.MODULE$.fromDDL(type);
    BoundRule rule = BoundRule.of(format, own, what);
    List out = new ArrayList();
    for (int i = 0; i < rows.size(); i++) {
      InternalRow row = (InternalRow) rows.get(i);
      BoundRule.Range bounds = rule.widen(row.get(0, own), row.get(1, own));
      out.add(bounds == null ? null : shown(bounds.lower()) + " to " + shown(bounds.upper()));
    }
    return out;
  }

  private static String shown(Object bound) {
    if (bound instanceof Decimal) {
      return ((Decimal) bound).toJavaBigDecimal().unscaledValue().toString();
    }
    byte[] bytes =
        bound instanceof UTF8String ? ((UTF8String) bound).getBytes()
        : bound instanceof byte[] ? (byte[]) bound : null;
    return bytes == null ? bound.toString() : Arrays.toString(bytes);
  }

  /** An expression over the rows as it is optimised; null: Spark has no such one, or a constant. */
  public Expression expression(Dataset frame, String sql) {
    try {
      Dataset made = frame.selectExpr(ScalaInterop.asScala(Collections.singletonList(sql + " AS v")));
      LogicalPlan plan = made.queryExecution().optimizedPlan();
      if (!(plan instanceof Project)) return null;
      Expression e = (Expression) ((Project) plan).projectList().head();
      return e instanceof Alias ? ((Alias) e).child() : null;
    } catch (Exception none) {
      return null;
    }
  }

  /** Its text, which an index knows it by; null: there is none. */
  public String text(Expression e) {
    return ExpressionText.of(Casts.bare(e), this).text();
  }

  /** What an expression is on each row, as a text; null for null. */
  public List values(Expression e) {
    Expression bound = bound(Casts.bare(e));
    List out = new ArrayList();
    for (int i = 0; i < rows.size(); i++) {
      try {
        Object value = bound.eval((InternalRow) rows.get(i));
        Object shown = value instanceof byte[] ? Arrays.toString((byte[]) value) : value;
        out.add(value == null ? null : "=" + shown);
      } catch (Exception failed) {
        out.add("fails");
      }
    }
    return out;
  }

  /**
   * Takes some outcomes of an expression for keys of a join, and looks whether what is asked of the
   * column allows each row that has one. Gives the number of rows; a text on a row that is lost;
   * null: nothing is asked.
   */
  public Object keys(Expression e, long seed) {
    Inversion inversion = Inversion.of(e);
    if (inversion == null) return null;
    Expression column = bound(inversion.column());
    scala.math.Ordering order = TypeUtils$.MODULE$.getInterpretedOrdering(e.dataType());
    scala.math.Ordering own = TypeUtils$.MODULE$.getInterpretedOrdering(column.dataType());
    List outcomes = outcomesOf(e);
    Set distinct = distinct(outcomes, order);
    Random draw = new Random(seed);
    List shuffled = new ArrayList(distinct);
    Collections.shuffle(shuffled, draw);
    List keys = new ArrayList(shuffled.subList(0, Math.min(shuffled.size(), draw.nextInt(25))));
    List legal = new ArrayList(keys);
    boolean areRanges = inversion.givesRanges() && draw.nextBoolean();
    List values = null;
    KeyRanges ranges = null;
    int open = draw.nextInt(4); // 0: no beginning, 1: no end
    if (areRanges) {
      List pairs = new ArrayList();
      for (int i = 0; i + 1 < keys.size(); i += 2) {
        pairs.add(new GenericInternalRow(
            open < 2 ? new Object[] {keys.get(i)} : new Object[] {keys.get(i), keys.get(i + 1)}));
      }
      legal = pairs;
      StructType fields = new StructType();
      if (open != 0) fields = fields.add(KeyRanges.FROM, e.dataType());
      if (open != 1) fields = fields.add(KeyRanges.TO, e.dataType());
      if (pairs.isEmpty()) return Integer.valueOf(0);
      ranges = inversion.ranges(KeyRanges.of(fields, pairs));
    } else if (inversion.givesRanges()) {
      ranges = keys.isEmpty() ? null : inversion.ranges(keys);
      if (ranges == null) return Integer.valueOf(0);
    } else {
      values = inversion.values(keys);
    }
    for (int i = 0; i < rows.size(); i++) {
      Object outcome = outcomes.get(i);
      if (outcome == null) continue;
      if (outcome != FAILED && !isOne(outcome, legal, areRanges, open, order)) continue;
      Object value = column.eval((InternalRow) rows.get(i));
      boolean kept = false;
      for (int k = 0; values != null && k < values.size(); k++) {
        kept |= own.compare(value, values.get(k)) == 0;
      }
      for (int k = 0; ranges != null && k < ranges.size(); k++) {
        kept |= (ranges.from() == null || own.compare(ranges.from().get(k), value) <= 0)
            && (ranges.to() == null || own.compare(value, ranges.to().get(k)) <= 0);
      }
      if (!kept) return e + " = " + outcome + " of " + value + " with keys " + legal;
    }
    return Integer.valueOf(rows.size());
  }

  /**
   * Takes some outcomes of an expression for keys of a join. Gives their forms, and of each row `t` if
   * its outcome is one of them, `f` if it is not, `e` if the expression fails on it; null: there are
   * no keys.
   */
  public Object[] drawKeys(Expression e, long seed) {
    scala.math.Ordering order = TypeUtils$.MODULE$.getInterpretedOrdering(e.dataType());
    List outcomes = outcomesOf(e);
    Random draw = new Random(seed);
    List keys = new ArrayList(distinct(outcomes, order));
    Collections.shuffle(keys, draw);
    if (keys.isEmpty()) return null;
    keys = new ArrayList(keys.subList(0, 1 + draw.nextInt(Math.min(keys.size(), 12))));
    StringBuilder marks = new StringBuilder();
    for (int i = 0; i < rows.size(); i++) {
      Object outcome = outcomes.get(i);
      boolean isKey =
          outcome != null && outcome != FAILED && isOne(outcome, keys, false, 0, order);
      marks.append(outcome == FAILED ? 'e' : isKey ? 't' : 'f');
    }
    return new Object[] {KeyForms.of(e, keys, "s"), marks.toString()};
  }

  /** The question for keys, as a command puts it for each operand of an OR. */
  public byte[] keysQuestion(KeyForms forms, Set expressions) {
    IndexedColumns columns = new IndexedColumns(this, expressions);
    List sets = new ArrayList();
    KeyValues given = forms.original();
    if (given != null && columns.identity(given.column()) != null) sets.add(given);
    if (sets.isEmpty() || columns.identity(forms.ofColumn().column()) != null) {
      sets.add(forms.ofColumn());
    }
    return PredicateEncoder.request("t", columns, new ArrayList(), sets, new ArrayList());
  }

  /** The outcomes of an expression on each row, as Catalyst values. */
  private List outcomesOf(Expression e) {
    Expression bound = bound(e);
    List out = new ArrayList();
    for (int i = 0; i < rows.size(); i++) {
      try {
        out.add(bound.eval((InternalRow) rows.get(i)));
      } catch (Exception failed) {
        out.add(isTime(e.dataType()) ? null : FAILED);
      }
    }
    return out;
  }

  private static Set distinct(List outcomes, scala.math.Ordering order) {
    Set out = new TreeSet(order);
    for (int i = 0; i < outcomes.size(); i++) {
      Object outcome = outcomes.get(i);
      if (outcome != null && outcome != FAILED) out.add(outcome);
    }
    return out;
  }

  /** Days and times that Spark has no number for are not looked for: they are long past the year
      200,000. */
  private static boolean isTime(DataType type) {
    return ValueTypes.isCounted(type) && !(type instanceof IntegralType);
  }

  private static boolean isOne(
      Object outcome, List legal, boolean areRanges, int open, scala.math.Ordering order) {
    for (int i = 0; i < legal.size(); i++) {
      if (!areRanges) {
        if (order.compare(outcome, legal.get(i)) == 0) return true;
        continue;
      }
      Object[] pair = ((GenericInternalRow) legal.get(i)).values();
      boolean after = open == 0 || order.compare(pair[0], outcome) <= 0;
      boolean before = open == 1 || order.compare(outcome, pair[pair.length - 1]) <= 0;
      if (after && before) return true;
    }
    return false;
  }
}
