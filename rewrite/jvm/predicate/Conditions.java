package rewrite.jvm.predicate;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryOperator;
import org.apache.spark.sql.catalyst.expressions.Coalesce;
import org.apache.spark.sql.catalyst.expressions.DynamicPruning;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.MetadataAttribute$;
import org.apache.spark.sql.catalyst.expressions.Or;
import rewrite.jvm.bridge.ScalaInterop;

/** Splits and joins the conditions of plans, and finds the columns in them. */
public final class Conditions {
  private static final int MAX_SHAPE = 60;

  private Conditions() {}

  /** Return the conditions that a condition joins with AND, in a list that can be changed. */
  public static List<Expression> conjuncts(Expression e) {
    return e instanceof And ? flatten(e) : new ArrayList<>(Collections.singletonList(e));
  }

  /** Join at least one condition with AND. */
  public static Expression conjunction(List<Expression> conditions) {
    return conditions.stream().reduce(And::new).orElseThrow();
  }

  /** Join conditions with OR; null without conditions. */
  public static Expression disjunction(List<Expression> conditions) {
    return conditions.stream().reduce(Or::new).orElse(null);
  }

  /** Return the operands of a chain of one operator. It does not recurse, because a query may join
      thousands of conditions with OR. */
  public static List<Expression> flatten(Expression e) {
    List<Expression> operands = new ArrayList<>();
    Deque<Expression> stack = new ArrayDeque<>();
    stack.push(e);
    while (!stack.isEmpty()) {
      Expression next = stack.pop();
      if (next.getClass() == e.getClass()) {
        stack.push(next.children().last());
        stack.push(next.children().head());
      } else {
        operands.add(next);
      }
    }
    return operands;
  }

  /** Return the constant that a coalesce puts in the place of null; null for any other expression.
      Spark plans `a <=> b` as coalesce(a, 0) = coalesce(b, 0) beside another equality. */
  static Literal coalesceDefault(Expression e) {
    return e instanceof Coalesce && e.children().size() == 2
        && e.children().last() instanceof Literal literal && literal.value() != null
        ? literal
        : null;
  }

  /**
   * Return the dynamic pruning expression in a condition of a logical or physical plan, or null.
   *
   * <p>`true OR dynamicpruning(...)` counts, too: see `setAside`.
   */
  public static Expression dynamic(Expression condition) {
    Expression inner = condition;
    while (inner instanceof Or or && isAside(or)) inner = or.right();
    return inner instanceof DynamicPruning ? inner : null;
  }

  /** Return a condition that has a dynamic pruning expression, but drops no row where Spark evaluates
      it: Spark cannot compare ranges and tuples, and passes no such condition to connectors. Set aside
      twice, its keys need what only their source knows. */
  public static Expression setAside(Expression dynamic) {
    return new Or(Literal$.MODULE$.TrueLiteral(), dynamic);
  }

  /** Whether a condition is one of `setAside`. */
  public static boolean isAside(Expression condition) {
    return condition instanceof Or or && or.left().equals(Literal$.MODULE$.TrueLiteral())
        && (or.right() instanceof DynamicPruning || isAside(or.right()));
  }

  /** Whether a condition was set aside twice. */
  public static boolean isTwiceAside(Expression condition) {
    return isAside(condition) && isAside(((Or) condition).right());
  }

  /** Return the names that lead to a column or a field of one; null for any other expression. */
  public static List<String> path(Expression e) {
    if (e instanceof AttributeReference column) {
      // `_metadata.file_size` arrives as a bare `file_size`, which a table may have as its own.
      return MetadataAttribute$.MODULE$.isValid(column.metadata())
          ? null
          : new ArrayList<>(List.of(column.name()));
    }
    if (!(e instanceof GetStructField field) || VariantFields.isOne(field)) return null;
    List<String> path = path(field.child());
    if (path == null) return null;
    path.add(field.childSchema().fields()[field.ordinal()].name());
    return path;
  }

  /** Describe an expression without its values, which are data: `id % ? = ?`. */
  public static String shape(Expression e) {
    String shape = shapeOf(e);
    return shape.length() > MAX_SHAPE ? shape.substring(0, MAX_SHAPE) + "..." : shape;
  }

  private static String shapeOf(Expression e) {
    if (e instanceof Literal) return "?";
    if (e instanceof AttributeReference column) return column.name();
    BinaryOperator operator = e instanceof BinaryOperator binary ? binary : null;
    String separator = operator == null ? ", " : " " + operator.symbol() + " ";
    StringBuilder out = new StringBuilder();
    for (Expression child : ScalaInterop.asJava(e.children())) {
      if (out.length() > MAX_SHAPE) break;
      out.append(out.isEmpty() ? "" : separator).append(shapeOf(child));
    }
    return operator == null ? e.prettyName() + "(" + out + ")" : out.toString();
  }
}
