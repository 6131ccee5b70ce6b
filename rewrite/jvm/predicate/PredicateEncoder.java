package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Contains;
import org.apache.spark.sql.catalyst.expressions.EndsWith;
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
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.LikeAll;
import org.apache.spark.sql.catalyst.expressions.LikeAny;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.RLike;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.catalyst.expressions.Substring;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.Protocol;
import rewrite.jvm.bridge.ScalaInterop;
import scala.collection.immutable.Seq;

/**
 * Writes filters as a tree for a message, exactly: whatever has no exact form becomes
 * {"op":"unknown"}.
 *
 * <p>NOT stays NOT here. Python takes it to the leaves before anything is weakened, so this class
 * must not weaken: a LIKE that is no plain prefix is unknown, not a prefix. What has a weak form
 * alone says both what holds where it is true and what holds where it is false.
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
      Map column = isThere ? column(Inversion.column(set.column())) : null;
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
    DataType type = set.column().dataType();
    List legs = new ArrayList();
    for (int i = 0; i < ranges.size(); i++) {
      Object from = ranges.from() == null ? null : ranges.from().get(i);
      Object to = ranges.to() == null ? null : ranges.to().get(i);
      List ends = ends(column, type, from, to);
      for (int j = 0; j < ends.size(); j++) {
        ((Map) ends.get(j)).put(Protocol.OF, set.dimension());
      }
      legs.add(join(Protocol.AND, ends));
    }
    return join(Protocol.OR, legs);
  }

  /** "The column is from one value to another": either may be null, for none. */
  private List ends(Map column, DataType type, Object from, Object to) {
    List out = new ArrayList();
    if (from != null) out.add(compare(">=", column, new Literal(from, type)));
    if (to != null) out.add(compare("<=", column, new Literal(to, type)));
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

  /** A condition that implies one thing where it is true, and another where it is false. */
  private static Map weak(Map holds, Map fails) {
    Map out = node(Protocol.WEAK, Protocol.HOLDS, holds);
    out.put(Protocol.FAILS, fails);
    return out;
  }

  private static Map nothing() {
    return join(Protocol.OR, new ArrayList());
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
    if (e instanceof StartsWith) return text(Protocol.PREFIX, e);
    if (e instanceof EndsWith) return text(Protocol.SUFFIX, e);
    if (e instanceof Contains) return text(Protocol.CONTAINS, e);
    if (e instanceof Like || e instanceof RLike) return pattern(e);
    if (e instanceof LikeAll) return patterns(Protocol.AND, e, ((LikeAll) e).patterns());
    if (e instanceof LikeAny) return patterns(Protocol.OR, e, ((LikeAny) e).patterns());
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

  private Map compare(String op, Expression e, Literal literal) {
    if (literal.value() == null || !MessageWriter.takes(literal.dataType())) return null;
    Map column = column(e);
    if (column != null) return compare(op, column, literal);
    if (e instanceof Substring) return beginning(op, (Substring) e, literal);
    if (!literal.dataType().equals(e.dataType())) return null;
    Monotonic function = Monotonic.of(e);
    if (function == null) return null;
    Object outcome = literal.value();
    List holds = function.ranges(op, outcome);
    return weak(function, holds, function.ranges(opposite(op), outcome));
  }

  private Map compare(String op, Map column, Literal literal) {
    Map out = leaf(Protocol.COMPARE, column);
    out.put(Protocol.COMPARE, op);
    out.put(Protocol.VALUES, one(literal));
    return out;
  }

  private Map one(Literal literal) {
    List values = new ArrayList();
    values.add(literal.value());
    return writer.values(literal.dataType(), values);
  }

  /** What the outcome of functions says of the column in them: it is within some ranges where the
      condition is true, and within others where it is false. */
  private Map weak(Monotonic function, List holds, List fails) {
    Map column = holds == null || fails == null ? null : column(function.column());
    if (column == null) return null;
    DataType type = function.column().dataType();
    return weak(within(column, type, holds), within(column, type, fails));
  }

  private static String opposite(String op) {
    return op.equals("<") ? ">=" : op.equals("<=") ? ">" : op.equals(">") ? "<="
        : op.equals(">=") ? "<" : "<>";
  }

  private Map within(Map column, DataType type, List ranges) {
    List legs = new ArrayList();
    for (int i = 0; i < ranges.size(); i++) {
      Object[] range = (Object[]) ranges.get(i);
      List ends = ends(column, type, range[0], range[1]);
      legs.add(ends.isEmpty() ? not(leaf(Protocol.NULL, column)) : join(Protocol.AND, ends));
    }
    return join(Protocol.OR, legs);
  }

  /** `substr(a, 1, n)` beside a text, exactly. It comes before `a`, so what is before the text has
      a beginning before it, too; and so has what begins as the text does and is cut short of it. */
  private Map beginning(String op, Substring e, Literal literal) {
    Map column = column(e.str());
    Object from = value(e.pos());
    Object n = value(e.len());
    boolean isBeginning = Integer.valueOf(1).equals(from) || Integer.valueOf(0).equals(from);
    if (column == null || !isBeginning || n == null || !literal.dataType().equals(e.dataType())) {
      return null;
    }
    UTF8String text = (UTF8String) literal.value();
    int length = ((Integer) n).intValue();
    if (length < 1 || !text.isValid()) return null;
    int more = text.numChars() - length;
    Map begins = leaf(Protocol.PREFIX, column);
    begins.put(Protocol.VALUES, one(new Literal(text.substring(0, length), literal.dataType())));
    if (op.equals("=")) {
      return more < 0 ? compare("=", column, literal) : more == 0 ? begins : nothing();
    }
    boolean isAfter = op.startsWith(">");
    String before = op.equals("<") || op.equals(">=") ? "<" : "<=";
    boolean isCut = before.equals("<") ? more > 0 : more >= 0;
    Map out = compare(before, column, literal);
    if (isCut) out = or(out, begins);
    return isAfter ? not(out) : out;
  }

  private Map outcomes(Expression e, List outcomes) {
    Monotonic function = Monotonic.of(e);
    if (function == null) return null;
    List holds = function.ranges(KeyRanges.of(e.dataType(), outcomes, outcomes));
    List all = new ArrayList();
    all.add(new Object[2]);
    return weak(function, holds, all);
  }

  private Map beginnings(Substring e, List texts) {
    if (texts.size() > RANGES) return null;
    List legs = new ArrayList();
    for (int i = 0; i < texts.size(); i++) {
      Map leg = beginning("=", e, new Literal(texts.get(i), e.dataType()));
      if (leg == null) return null;
      legs.add(leg);
    }
    return join(Protocol.OR, legs);
  }

  private static Object value(Expression e) {
    return e instanceof Literal ? ((Literal) e).value() : null;
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
    if (!MessageWriter.takes(column.dataType())) return null;
    List there = new ArrayList();
    for (int i = 0; i < values.size(); i++) {
      if (values.get(i) != null) there.add(values.get(i));
    }
    Map identity = column(column);
    if (identity == null) {
      Map one = column instanceof Substring ? beginnings((Substring) column, there)
          : outcomes(column, there);
      // NOT IN (2, NULL) is never true.
      return one == null || there.size() == values.size() ? one : weak(one, nothing());
    }
    Map out = leaf(Protocol.IN, identity);
    out.put(Protocol.NULLS, Boolean.valueOf(there.size() < values.size()));
    out.put(Protocol.VALUES, writer.values(column.dataType(), there));
    return out;
  }

  private Map text(String op, Expression e) {
    Map identity = column((Expression) e.children().apply(0));
    Expression text = (Expression) e.children().apply(1);
    if (identity == null || !(text instanceof Literal)) return null;
    return ((Literal) text).value() == null ? null : text(op, identity, (Literal) text);
  }

  private Map text(String op, Map column, Literal text) {
    Map out = leaf(op, column);
    out.put(Protocol.VALUES, one(text));
    return out;
  }

  private Map pattern(Expression e) {
    Map identity = column((Expression) e.children().apply(0));
    Expression text = (Expression) e.children().apply(1);
    if (identity == null || !(text instanceof Literal) || ((Literal) text).value() == null) {
      return null;
    }
    String pattern = ((Literal) text).value().toString();
    List demanded =
        e instanceof RLike
            ? demanded(TextPattern.regex(pattern), identity)
            : demanded(TextPattern.like(pattern, ((Like) e).escapeChar()), identity);
    return demanded.isEmpty() ? null : weak(join(Protocol.AND, demanded), e);
  }

  /** Of LIKE ALL and LIKE ANY, whose patterns have the escape character that there is. */
  private Map patterns(String op, Expression e, Seq patterns) {
    Map identity = column((Expression) e.children().apply(0));
    if (identity == null) return null;
    List given = ScalaInterop.list(patterns);
    List legs = new ArrayList();
    for (int i = 0; i < given.size(); i++) {
      if (given.get(i) == null) return null;
      List demanded = demanded(TextPattern.like(given.get(i).toString(), '\\'), identity);
      if (!demanded.isEmpty()) {
        legs.add(join(Protocol.AND, demanded));
      } else if (op.equals(Protocol.OR)) {
        return null;
      }
    }
    return legs.isEmpty() ? null : weak(join(op, legs), e);
  }

  /** Leaves that are true of what matches a pattern; none where there is none, or it is null. */
  private List demanded(TextPattern pattern, Map column) {
    List legs = new ArrayList();
    if (pattern == null) return legs;
    String whole = pattern.whole();
    if (whole != null) {
      if (!whole.isEmpty()) legs.add(text(Protocol.PREFIX, column, literal(whole)));
      return legs;
    }
    if (!pattern.prefix().isEmpty()) {
      legs.add(text(Protocol.PREFIX, column, literal(pattern.prefix())));
    }
    List inner = pattern.inner();
    for (int i = 0; i < inner.size(); i++) {
      legs.add(text(Protocol.CONTAINS, column, literal((String) inner.get(i))));
    }
    if (!pattern.suffix().isEmpty()) {
      legs.add(text(Protocol.SUFFIX, column, literal(pattern.suffix())));
    }
    return legs;
  }

  private static Literal literal(String text) {
    return new Literal(UTF8String.fromString(text), DataTypes.StringType);
  }

  /** A condition of which it is known what holds where it is true, and nothing where it is false. */
  private static Map weak(Map holds, Expression e) {
    return weak(holds, unknown("NOT " + Conditions.shape(e)));
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
