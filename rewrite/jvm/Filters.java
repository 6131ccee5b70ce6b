package rewrite.jvm;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BinaryOperator;
import org.apache.spark.sql.catalyst.expressions.Cast;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.KnownFloatingPointNormalized;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.MetadataAttribute$;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.catalyst.optimizer.NormalizeNaNAndZero;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegralType;
import org.apache.spark.sql.types.StructType;

/**
 * Writes filters as JSON, exactly: whatever has no exact form becomes {"op":"unknown"}.
 *
 * <p>NOT stays NOT here. Python takes it to the leaves before anything is weakened, so this class
 * must not weaken: a LIKE that is no plain prefix is unknown, not a prefix.
 */
public final class Filters {
  private static final int LONGEST_SHAPE = 60;

  /** Levels of AND, OR and NOT inside each other; what is deeper is unknown. JSON is read so deep. */
  private static final int DEEPEST = 200;

  private final ColumnIdentities identities;
  private final Question question;

  public Filters(ColumnIdentities identities, Question question) {
    this.identities = identities;
    this.question = question;
  }

  /** The conjunction of the filters and of "its column has one of these keys". */
  public String all(List filters, List keys) {
    List legs = legs(filters, 0);
    for (int i = 0; i < keys.size(); i++) {
      KeySet set = (KeySet) keys.get(i);
      String column = set.values() == null ? null : column(set.column());
      if (column != null) {
        legs.add(
            "{\"op\":\"in\",\"column\":" + column + ",\"of\":" + Question.quote(set.dimension())
                + ",\"nulls\":false,\"values\":"
                + question.values(set.column().dataType(), set.values()) + "}");
      }
    }
    return join("and", legs);
  }

  private List legs(List expressions, int depth) {
    List out = new ArrayList();
    for (int i = 0; i < expressions.size(); i++) {
      out.add(write((Expression) expressions.get(i), depth));
    }
    return out;
  }

  private static String join(String op, List legs) {
    return "{\"op\":\"" + op + "\",\"legs\":[" + String.join(",", legs) + "]}";
  }

  private String write(Expression e, int depth) {
    boolean joins = e instanceof And || e instanceof Or;
    if (depth == DEEPEST && (joins || e instanceof Not)) {
      return "{\"op\":\"unknown\",\"why\":\"a condition nested too deeply\"}";
    }
    if (joins) {
      return join(e instanceof And ? "and" : "or", legs(flatten(e), depth + 1));
    }
    if (e instanceof Not) {
      return "{\"op\":\"not\",\"leg\":" + write(((Not) e).child(), depth + 1) + "}";
    }
    String leaf = leaf(e);
    return leaf == null ? unknown(e) : leaf;
  }

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
  private static List flatten(Expression e) {
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

  private String leaf(Expression e) {
    if (e instanceof EqualTo) return compare("=", "=", e);
    if (e instanceof LessThan) return compare("<", ">", e);
    if (e instanceof LessThanOrEqual) return compare("<=", ">=", e);
    if (e instanceof GreaterThan) return compare(">", "<", e);
    if (e instanceof GreaterThanOrEqual) return compare(">=", "<=", e);
    if (e instanceof EqualNullSafe) return nullSafe((EqualNullSafe) e);
    if (e instanceof IsNull) return isNull(((IsNull) e).child());
    if (e instanceof IsNotNull) {
      String leaf = isNull(((IsNotNull) e).child());
      return leaf == null ? null : "{\"op\":\"not\",\"leg\":" + leaf + "}";
    }
    if (e instanceof In) return in((In) e);
    if (e instanceof InSet) {
      return in(((InSet) e).child(), Scala.list(((InSet) e).hset()));
    }
    if (e instanceof StartsWith) return startsWith((StartsWith) e);
    // Spark writes `ok = true` as `ok`.
    if (e.dataType() instanceof BooleanType) return compare("=", e, Literal$.MODULE$.TrueLiteral());
    return null;
  }

  private String compare(String op, String mirrored, Expression e) {
    Expression left = (Expression) e.children().apply(0);
    Expression right = (Expression) e.children().apply(1);
    if (left instanceof Literal) {
      return compare(mirrored, right, (Literal) left);
    }
    return right instanceof Literal ? compare(op, left, (Literal) right) : null;
  }

  private String compare(String op, Expression column, Literal literal) {
    String identity = column(column);
    if (identity == null || literal.value() == null) return null;
    if (!Question.takes(literal.dataType())) return null;
    List one = new ArrayList();
    one.add(literal.value());
    return "{\"op\":\"compare\",\"compare\":\"" + op + "\",\"column\":" + identity
        + ",\"values\":" + question.values(literal.dataType(), one) + "}";
  }

  /** `a <=> 5` is `a = 5 AND a IS NOT NULL`: never null, so that its negation is exact too. */
  private String nullSafe(EqualNullSafe e) {
    Expression column = e.left() instanceof Literal ? e.right() : e.left();
    Expression other = e.left() instanceof Literal ? e.left() : e.right();
    if (!(other instanceof Literal)) return null;
    String isNull = isNull(column);
    if (isNull == null || ((Literal) other).value() == null) return isNull;
    String equal = compare("=", column, (Literal) other);
    return equal == null
        ? null
        : "{\"op\":\"and\",\"legs\":[" + equal + ",{\"op\":\"not\",\"leg\":" + isNull + "}]}";
  }

  private String isNull(Expression column) {
    String identity = column(column);
    return identity == null ? null : "{\"op\":\"null\",\"column\":" + identity + "}";
  }

  private String in(In e) {
    List values = new ArrayList();
    List list = Scala.list(e.list());
    for (int i = 0; i < list.size(); i++) {
      if (!(list.get(i) instanceof Literal)) return null;
      values.add(((Literal) list.get(i)).value());
    }
    return in(e.value(), values);
  }

  private String in(Expression column, List values) {
    String identity = column(column);
    if (identity == null || !Question.takes(column.dataType())) return null;
    List there = new ArrayList();
    for (int i = 0; i < values.size(); i++) {
      if (values.get(i) != null) there.add(values.get(i));
    }
    return "{\"op\":\"in\",\"column\":" + identity + ",\"nulls\":"
        + (there.size() < values.size()) + ",\"values\":"
        + question.values(column.dataType(), there) + "}";
  }

  private String startsWith(StartsWith e) {
    String identity = column(e.left());
    if (identity == null || !(e.right() instanceof Literal)) return null;
    Literal prefix = (Literal) e.right();
    if (prefix.value() == null) return null;
    List one = new ArrayList();
    one.add(prefix.value());
    return "{\"op\":\"prefix\",\"column\":" + identity
        + ",\"values\":" + question.values(prefix.dataType(), one) + "}";
  }

  /** JSON of the column that an expression is, or null. */
  private String column(Expression e) {
    Expression bare = bare(e);
    List path = path(bare);
    return path == null ? null : identities.json(path, bare.dataType());
  }

  /** An expression without what keeps every value and their order: casts to a wider number, and
      Spark's normalisation of NaN and -0.0, which every index kind makes equal too. */
  public static Expression bare(Expression e) {
    while (true) {
      if (e instanceof Cast && widens(((Cast) e).child().dataType(), e.dataType())) {
        e = ((Cast) e).child();
      } else if (e instanceof NormalizeNaNAndZero || e instanceof KnownFloatingPointNormalized) {
        e = (Expression) e.children().apply(0);
      } else {
        return e;
      }
    }
  }

  private static boolean widens(DataType from, DataType to) {
    if (from instanceof IntegralType && to instanceof IntegralType) {
      return from.defaultSize() <= to.defaultSize();
    }
    return from instanceof FloatType && to instanceof DoubleType;
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
      List path = path(field.child());
      if (path == null) return null;
      path.add(((StructType) field.child().dataType()).fields()[field.ordinal()].name());
      return path;
    }
    return null;
  }

  /** Says why, for explain. */
  private static String unknown(Expression e) {
    return "{\"op\":\"unknown\",\"why\":" + Question.quote(shape(e)) + "}";
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
    List children = Scala.list(e.children());
    for (int i = 0; i < children.size() && out.length() <= LONGEST_SHAPE; i++) {
      out.append(i == 0 ? "" : between).append(words((Expression) children.get(i)));
    }
    return e instanceof BinaryOperator ? out.toString() : e.prettyName() + "(" + out + ")";
  }
}
