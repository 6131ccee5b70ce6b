package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.types.BooleanType;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * Writes filters as JSON, exactly: whatever has no exact form becomes {"op":"unknown"}.
 *
 * <p>NOT stays NOT here. Python takes it to the leaves before anything is weakened, so this class
 * must not weaken: a LIKE that is no plain prefix is unknown, not a prefix.
 */
public final class PredicateEncoder {
  /** Levels of AND, OR and NOT inside each other; what is deeper is unknown. JSON is read so deep.
      */
  private static final int DEEPEST = 200;

  private final ColumnResolver identities;
  private final MessageWriter question;

  public PredicateEncoder(ColumnResolver identities, MessageWriter question) {
    this.identities = identities;
    this.question = question;
  }

  /** The conjunction of the filters and of "its column has one of these keys". */
  public String all(List filters, List keys) {
    List legs = legs(filters, 0);
    for (int i = 0; i < keys.size(); i++) {
      KeyValues set = (KeyValues) keys.get(i);
      String column = set.values() == null ? null : column(set.column());
      if (column != null) {
        legs.add(
            "{\"op\":\"in\",\"column\":" + column + ",\"of\":" + MessageWriter.quote(set.dimension())
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
      return join(e instanceof And ? "and" : "or", legs(Conditions.flatten(e), depth + 1));
    }
    if (e instanceof Not) {
      return "{\"op\":\"not\",\"leg\":" + write(((Not) e).child(), depth + 1) + "}";
    }
    String leaf = leaf(e);
    return leaf == null ? unknown(e) : leaf;
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
      return in(((InSet) e).child(), ScalaInterop.list(((InSet) e).hset()));
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
    if (!MessageWriter.takes(literal.dataType())) return null;
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
    List list = ScalaInterop.list(e.list());
    for (int i = 0; i < list.size(); i++) {
      if (!(list.get(i) instanceof Literal)) return null;
      values.add(((Literal) list.get(i)).value());
    }
    return in(e.value(), values);
  }

  private String in(Expression column, List values) {
    String identity = column(column);
    if (identity == null || !MessageWriter.takes(column.dataType())) return null;
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
    Expression bare = Conditions.bare(e);
    List path = Conditions.path(bare);
    return path == null ? null : identities.json(path, bare.dataType());
  }

  /** Says why, for explain. */
  private static String unknown(Expression e) {
    return "{\"op\":\"unknown\",\"why\":" + MessageWriter.quote(Conditions.shape(e)) + "}";
  }
}
