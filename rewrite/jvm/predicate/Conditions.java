package rewrite.jvm.predicate;

import java.util.ArrayList;
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
import org.apache.spark.sql.types.StructType;
import rewrite.jvm.bridge.ScalaInterop;

/** Conditions of plans: taken apart by AND, put together again, and the columns that they name. */
public final class Conditions {
  private static final int LONGEST_SHAPE = 60;

  private Conditions() {}

  /** The conditions that a condition joins with AND; itself if it is none. */
  public static List conjuncts(Expression e) {
    return e instanceof And ? flatten(e) : new ArrayList(java.util.Collections.singletonList(e));
  }

  /** All of some conditions, of which there is at least one. */
  public static Expression conjunction(List conditions) {
    Expression all = (Expression) conditions.get(0);
    for (int i = 1; i < conditions.size(); i++) {
      all = new And(all, (Expression) conditions.get(i));
    }
    return all;
  }

  /** The legs of a chain of one operator, without recursion: people write ORs of thousands. */
  public static List flatten(Expression e) {
    Class kind = e.getClass();
    List legs = new ArrayList();
    java.util.ArrayDeque todo = new java.util.ArrayDeque();
    todo.push(e);
    while (!todo.isEmpty()) {
      Expression next = (Expression) todo.pop();
      if (next.getClass() == kind) {
        todo.push(next.children().apply(1));
        todo.push(next.children().apply(0));
      } else {
        legs.add(next);
      }
    }
    return legs;
  }

  /** What a coalesce of two has in the place of nulls; null for any other expression. Spark takes
      `a <=> b` for coalesce(a, 0) = coalesce(b, 0), beside another equality. */
  static Literal instead(Expression e) {
    if (!(e instanceof Coalesce) || e.children().size() != 2) return null;
    Object last = e.children().apply(1);
    return last instanceof Literal && ((Literal) last).value() != null ? (Literal) last : null;
  }

  /**
   * The dynamic-pruning expression that a condition is, in a logical or a physical plan; null: it
   * is none.
   *
   * <p>`true OR dynamicpruning(...)` is one, too: of ranges, which only we know how to compare.
   */
  public static Expression dynamic(Expression condition) {
    Expression inner = isAside(condition) ? ((Or) condition).right() : condition;
    return inner instanceof DynamicPruning ? inner : null;
  }

  /** Whether a condition is a dynamic-pruning expression that drops no row where it is evaluated as
      it stands: that of ranges, or of tuples. */
  public static boolean isAside(Expression condition) {
    return condition instanceof Or
        && ((Or) condition).left().equals(Literal$.MODULE$.TrueLiteral())
        && ((Or) condition).right() instanceof DynamicPruning;
  }

  /** The names that lead to a column or a field of one; null for any other expression. */
  public static List path(Expression e) {
    if (e instanceof AttributeReference) {
      // `_metadata.file_size` arrives as a bare `file_size`, which a table may have as its own.
      if (MetadataAttribute$.MODULE$.isValid(((AttributeReference) e).metadata())) return null;
      List path = new ArrayList();
      path.add(((AttributeReference) e).name());
      return path;
    }
    if (e instanceof GetStructField) {
      GetStructField field = (GetStructField) e;
      if (VariantFields.isOne(field)) return null;
      List path = path(field.child());
      if (path == null) return null;
      path.add(((StructType) field.child().dataType()).fields()[field.ordinal()].name());
      return path;
    }
    return null;
  }

  /** An expression in words, `id % ? = ?`, without its values: they are data. */
  public static String shape(Expression e) {
    String words = words(e);
    return words.length() > LONGEST_SHAPE ? words.substring(0, LONGEST_SHAPE) + "..." : words;
  }

  private static String words(Expression e) {
    if (e instanceof Literal) return "?";
    if (e instanceof AttributeReference) return ((AttributeReference) e).name();
    StringBuilder out = new StringBuilder();
    String between = e instanceof BinaryOperator ? " " + ((BinaryOperator) e).symbol() + " " : ", ";
    List children = ScalaInterop.list(e.children());
    for (int i = 0; i < children.size() && out.length() <= LONGEST_SHAPE; i++) {
      out.append(i == 0 ? "" : between).append(words((Expression) children.get(i)));
    }
    return e instanceof BinaryOperator ? out.toString() : e.prettyName() + "(" + out + ")";
  }
}
