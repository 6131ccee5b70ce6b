package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
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
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.Protocol;

/**
 * Writes filters as a tree for a message, exactly: whatever has no exact form becomes
 * {"op":"unknown"}.
 *
 * <p>NOT stays NOT here. Python takes it to the leaves before anything is weakened, so this class
 * must not weaken: a LIKE that is no plain prefix is unknown, not a prefix.
 */
public final class PredicateEncoder {
  /** Levels of AND, OR and NOT inside each other; what is deeper is unknown. JSON is read so deep.
      */
  private static final int DEEPEST = 200;

  /** Ranges that an index is asked about: each is two conditions in explain. */
  private static final int RANGES = 10;

  private final ColumnResolver identities;
  private final MessageWriter writer;
  private final Set expressions;

  /** `expressions` are the identities of those that the table's index has (ExpressionText). */
  public PredicateEncoder(ColumnResolver identities, MessageWriter writer, Set expressions) {
    this.identities = identities;
    this.writer = writer;
    this.expressions = expressions;
  }

  /** The question which files of a table the filters, and the keys of joins, disprove. */
  public static byte[] question(
      String table, ColumnResolver columns, Set expressions, List filters, List keys) {
    MessageWriter writer = new MessageWriter();
    Map question = MessageWriter.question(Protocol.DISPROVED);
    question.put(Protocol.TABLE, table);
    PredicateEncoder encoder = new PredicateEncoder(columns, writer, expressions);
    question.put(Protocol.FILTERS, encoder.all(filters, keys));
    return writer.message(question);
  }

  /** The conjunction of the filters and of "its column has one of these keys". */
  public Map all(List filters, List keys) {
    List legs = legs(filters, 0);
    for (int i = 0; i < keys.size(); i++) {
      KeyValues set = (KeyValues) keys.get(i);
      boolean isThere = set.values() != null || set.ranges() != null;
      Map column = isThere ? column(Conditions.column(set.column())) : null;
      if (column == null) continue;
      if (set.ranges() != null) {
        legs.add(within(set, column));
        continue;
      }
      Map leg = of(set, column, set.values());
      legs.add(isOfNulls(set) ? or(leg, leaf(Protocol.NULL, column)) : leg);
    }
    return join(Protocol.AND, legs);
  }

  /** "The column has one of these values", which are keys. */
  private Map of(KeyValues set, Map column, List values) {
    Map leg = leaf(Protocol.IN, column);
    leg.put(Protocol.OF, set.dimension());
    leg.put(Protocol.NULLS, Boolean.FALSE);
    leg.put(Protocol.VALUES, writer.values(set.column().dataType(), values));
    return leg;
  }

  /** "The column is within one of these ranges". */
  private Map within(KeyValues set, Map column) {
    KeyRanges ranges = set.ranges().few(RANGES);
    if (ranges.size() == 0) return of(set, column, new ArrayList());
    List legs = new ArrayList();
    for (int i = 0; i < ranges.size(); i++) {
      List ends = new ArrayList();
      if (ranges.from() != null) ends.add(end(">=", set, column, ranges.from().get(i)));
      if (ranges.to() != null) ends.add(end("<=", set, column, ranges.to().get(i)));
      legs.add(join(Protocol.AND, ends));
    }
    return join(Protocol.OR, legs);
  }

  private Map end(String op, KeyValues set, Map column, Object value) {
    Map out = leaf(Protocol.COMPARE, column);
    out.put(Protocol.OF, set.dimension());
    out.put(Protocol.COMPARE, op);
    out.put(Protocol.VALUES, one(new Literal(value, set.column().dataType())));
    return out;
  }

  /** Whether a null is one of the keys: coalesce(a, 0) is among them if a is, or is null, and 0 is
      among them. Of values that have several forms, as -0.0, it is taken for granted. */
  private static boolean isOfNulls(KeyValues set) {
    Literal instead = Conditions.instead(set.column());
    if (instead == null) return false;
    Object value = instead.value();
    boolean exact =
        value instanceof Long || value instanceof Integer || value instanceof Short
            || value instanceof Byte || value instanceof UTF8String;
    return !exact || set.values().contains(value);
  }

  private static Map or(Map one, Map other) {
    List legs = new ArrayList();
    legs.add(one);
    legs.add(other);
    return join(Protocol.OR, legs);
  }

  private List legs(List expressions, int depth) {
    List out = new ArrayList();
    for (int i = 0; i < expressions.size(); i++) {
      out.add(write((Expression) expressions.get(i), depth));
    }
    return out;
  }

  private static Map node(String op, String key, Object value) {
    Map out = new LinkedHashMap();
    out.put(Protocol.OP, op);
    out.put(key, value);
    return out;
  }

  private static Map join(String op, List legs) {
    return node(op, Protocol.LEGS, legs);
  }

  private static Map not(Map leg) {
    return node(Protocol.NOT, Protocol.LEG, leg);
  }

  private static Map unknown(String why) {
    return node(Protocol.UNKNOWN, Protocol.WHY, why);
  }

  private static Map leaf(String op, Map column) {
    return node(op, Protocol.COLUMN, column);
  }

  private Map write(Expression e, int depth) {
    boolean joins = e instanceof And || e instanceof Or;
    if (depth == DEEPEST && (joins || e instanceof Not)) {
      return unknown("a condition nested too deeply");
    }
    if (joins) {
      String op = e instanceof And ? Protocol.AND : Protocol.OR;
      return join(op, legs(Conditions.flatten(e), depth + 1));
    }
    if (e instanceof Not) return not(write(((Not) e).child(), depth + 1));
    Map leaf = leaf(e);
    return leaf == null ? unknown(Conditions.shape(e)) : leaf; // says why, for explain
  }

  private Map leaf(Expression e) {
    if (e instanceof EqualTo) return compare("=", "=", e);
    if (e instanceof LessThan) return compare("<", ">", e);
    if (e instanceof LessThanOrEqual) return compare("<=", ">=", e);
    if (e instanceof GreaterThan) return compare(">", "<", e);
    if (e instanceof GreaterThanOrEqual) return compare(">=", "<=", e);
    if (e instanceof EqualNullSafe) return nullSafe((EqualNullSafe) e);
    if (e instanceof IsNull) return isNull(((IsNull) e).child());
    if (e instanceof IsNotNull) {
      Map leaf = isNull(((IsNotNull) e).child());
      return leaf == null ? null : not(leaf);
    }
    if (e instanceof In || e instanceof InSet) {
      List values = ListedValues.in(e);
      return values == null ? null : in((Expression) e.children().apply(0), values);
    }
    if (e instanceof StartsWith) return startsWith((StartsWith) e);
    // Spark writes `ok = true` as `ok`.
    if (e.dataType() instanceof BooleanType) return compare("=", e, Literal$.MODULE$.TrueLiteral());
    return null;
  }

  private Map compare(String op, String mirrored, Expression e) {
    Expression left = (Expression) e.children().apply(0);
    Expression right = (Expression) e.children().apply(1);
    if (left instanceof Literal) {
      return compare(mirrored, right, (Literal) left);
    }
    return right instanceof Literal ? compare(op, left, (Literal) right) : null;
  }

  private Map compare(String op, Expression column, Literal literal) {
    Map identity = column(column);
    if (identity == null || literal.value() == null) return null;
    if (!MessageWriter.takes(literal.dataType())) return null;
    Map out = leaf(Protocol.COMPARE, identity);
    out.put(Protocol.COMPARE, op);
    out.put(Protocol.VALUES, one(literal));
    return out;
  }

  private Map one(Literal literal) {
    List values = new ArrayList();
    values.add(literal.value());
    return writer.values(literal.dataType(), values);
  }

  /** `a <=> 5` is `a = 5 AND a IS NOT NULL`: never null, so that its negation is exact too. */
  private Map nullSafe(EqualNullSafe e) {
    Expression column = e.left() instanceof Literal ? e.right() : e.left();
    Expression other = e.left() instanceof Literal ? e.left() : e.right();
    if (!(other instanceof Literal)) return null;
    Map isNull = isNull(column);
    if (isNull == null || ((Literal) other).value() == null) return isNull;
    Map equal = compare("=", column, (Literal) other);
    if (equal == null) return null;
    List legs = new ArrayList();
    legs.add(equal);
    legs.add(not(isNull));
    return join(Protocol.AND, legs);
  }

  private Map isNull(Expression column) {
    Map identity = column(column);
    return identity == null ? null : leaf(Protocol.NULL, identity);
  }

  private Map in(Expression column, List values) {
    Map identity = column(column);
    if (identity == null || !MessageWriter.takes(column.dataType())) return null;
    List there = new ArrayList();
    for (int i = 0; i < values.size(); i++) {
      if (values.get(i) != null) there.add(values.get(i));
    }
    Map out = leaf(Protocol.IN, identity);
    out.put(Protocol.NULLS, Boolean.valueOf(there.size() < values.size()));
    out.put(Protocol.VALUES, writer.values(column.dataType(), there));
    return out;
  }

  private Map startsWith(StartsWith e) {
    Map identity = column(e.left());
    if (identity == null || !(e.right() instanceof Literal)) return null;
    Literal prefix = (Literal) e.right();
    if (prefix.value() == null) return null;
    Map out = leaf(Protocol.PREFIX, identity);
    out.put(Protocol.VALUES, one(prefix));
    return out;
  }

  /** The column that an expression is, of the table or of its index; or null. */
  private Map column(Expression e) {
    Expression bare = Casts.bare(e);
    List path = Conditions.path(bare);
    if (path != null) return identities.describe(path, bare.dataType());
    if (expressions.isEmpty() || bare instanceof Literal) return null;
    String text = ExpressionText.of(bare, identities, SQLConf.get()).text();
    if (text == null || !expressions.contains(text)) return null;
    Map out = new LinkedHashMap();
    out.put(Protocol.IDENTITY, text);
    out.put(Protocol.NAME, Conditions.shape(bare));
    out.put(Protocol.TYPE, bare.dataType().catalogString());
    return out;
  }
}
