package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
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
import org.apache.spark.sql.catalyst.expressions.Substring;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.Protocol;

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

  /** Up to so many tuples are asked for beside composites, too. */
  public static final int FEW_TUPLES = 50;

  private final IndexedColumns columns;
  private final ConditionNodes nodes;
  private final TextConditions texts;

  public PredicateEncoder(IndexedColumns columns, MessageWriter writer) {
    this.columns = columns;
    this.nodes = new ConditionNodes(writer);
    this.texts = new TextConditions(nodes);
  }

  /** The question which files of a table the filters, and the keys of joins, prune. */
  public static byte[] question(
      String table, IndexedColumns columns, List filters, List keys, List tuples) {
    MessageWriter writer = new MessageWriter();
    Map question = MessageWriter.question(Protocol.PRUNED);
    question.put(Protocol.TABLE, table);
    PredicateEncoder encoder = new PredicateEncoder(columns, writer);
    question.put(Protocol.FILTERS, encoder.all(filters, keys, tuples));
    return writer.message(question);
  }

  /** The conjunction of the filters, of "its column has one of these keys", and of tuples. */
  private Map all(List filters, List keys, List tuples) {
    List legs = legs(filters, 0);
    for (int i = 0; i < tuples.size(); i++) {
      legs.add(asOne((Tuples) tuples.get(i)));
    }
    for (int i = 0; i < keys.size(); i++) {
      KeyValues set = (KeyValues) keys.get(i);
      boolean isThere = set.values() != null || set.ranges() != null;
      if (!isThere) continue;
      Map column = columns.describe(set.column());
      boolean isInstead = column == null && Conditions.instead(set.column()) != null;
      if (isInstead) column = columns.describe(set.column().children().apply(0));
      if (column == null) continue;
      Map leg = set.ranges() == null ? of(set, column, set.values()) : within(set, column);
      boolean orNull = isInstead && isOfNulls(set);
      legs.add(orNull ? nodes.or(leg, nodes.leaf(Protocol.NULL, column)) : leg);
    }
    return nodes.join(Protocol.AND, legs);
  }

  /** "The column has one of these values", which are keys. */
  private Map of(KeyValues set, Map column, List values) {
    Map leg = nodes.in(column, set.column().dataType(), values, false);
    leg.put(Protocol.OF, set.dimension());
    return leg;
  }

  /** "The column is within one of these ranges", which are keys. */
  private Map within(KeyValues set, Map column) {
    KeyRanges ranges = set.ranges().asked();
    if (ranges.size() == 0) return of(set, column, new ArrayList());
    return nodes.within(column, set.column().dataType(), ranges.pairs(), set.dimension());
  }

  /** Tuples for the composites of the index. */
  private Map asOne(Tuples tuples) {
    List parts = new ArrayList();
    List types = new ArrayList();
    List values = new ArrayList();
    for (int i = 0; i < tuples.columns().size(); i++) {
      Expression e = (Expression) tuples.columns().get(i);
      Map column = MessageWriter.takes(e.dataType()) ? columns.describe(e) : null;
      if (column == null) continue;
      parts.add(column);
      types.add(e.dataType());
      values.add(tuples.values(i));
    }
    return nodes.tuples(parts, types, values, tuples.dimension());
  }

  /** The query's own tuples: while they are few, each by itself. */
  private Map each(Tuples tuples) {
    List rows = tuples.rows();
    List legs = new ArrayList();
    boolean areFew = rows.size() <= FEW_TUPLES;
    if (!areFew) legs.add(asOne(tuples));
    for (int i = 0; i < (areFew ? rows.size() : 0); i++) {
      List equal = new ArrayList();
      for (int j = 0; j < tuples.columns().size(); j++) {
        Expression e = (Expression) tuples.columns().get(j);
        Object value = ((InternalRow) rows.get(i)).get(j, e.dataType());
        Map leaf = compare("=", e, new Literal(value, e.dataType()));
        if (leaf != null) equal.add(leaf);
      }
      legs.add(nodes.join(Protocol.AND, equal));
    }
    for (int j = 0; !areFew && j < tuples.columns().size(); j++) {
      Map leaf = in((Expression) tuples.columns().get(j), tuples.values(j));
      if (leaf != null) legs.add(leaf);
    }
    return nodes.weak(
        nodes.join(areFew ? Protocol.OR : Protocol.AND, legs), nodes.unknown("other tuples"));
  }

  /** Whether a null is one of the keys: coalesce(a, 0) is among them if a is, or is null, and 0 is
      among them. Of ranges, and values that have several forms, as -0.0, it is taken for
      granted. */
  private static boolean isOfNulls(KeyValues set) {
    Object value = Conditions.instead(set.column()).value();
    boolean exact =
        value instanceof Long || value instanceof Integer || value instanceof Short
            || value instanceof Byte || value instanceof UTF8String;
    return !exact || set.values() == null || set.values().contains(value);
  }

  private List legs(List expressions, int depth) {
    List out = new ArrayList();
    for (int i = 0; i < expressions.size(); i++) {
      out.add(write((Expression) expressions.get(i), depth));
    }
    return out;
  }

  private Map write(Expression e, int depth) {
    boolean joins = e instanceof And || e instanceof Or;
    if (depth == DEEPEST && (joins || e instanceof Not)) {
      return nodes.unknown("a condition nested too deeply");
    }
    if (joins) {
      String op = e instanceof And ? Protocol.AND : Protocol.OR;
      return nodes.join(op, legs(Conditions.flatten(e), depth + 1));
    }
    if (e instanceof Not) return nodes.not(write(((Not) e).child(), depth + 1));
    Map leaf = leaf(e);
    return leaf == null ? nodes.unknown(Conditions.shape(e)) : leaf; // says why, for explain
  }

  private Map leaf(Expression e) {
    Tuples tuples = Tuples.of(e);
    if (tuples != null) return each(tuples);
    if (e instanceof EqualTo) return compare("=", "=", e);
    if (e instanceof LessThan) return compare("<", ">", e);
    if (e instanceof LessThanOrEqual) return compare("<=", ">=", e);
    if (e instanceof GreaterThan) return compare(">", "<", e);
    if (e instanceof GreaterThanOrEqual) return compare(">=", "<=", e);
    if (e instanceof EqualNullSafe) return nullSafe((EqualNullSafe) e);
    if (e instanceof IsNull) return isNull(((IsNull) e).child());
    if (e instanceof IsNotNull) {
      Map leaf = isNull(((IsNotNull) e).child());
      return leaf == null ? null : nodes.not(leaf);
    }
    if (e instanceof In || e instanceof InSet) {
      List values = ListedValues.in(e);
      return values == null ? null : in(e.children().apply(0), values);
    }
    if (TextConditions.isOne(e)) {
      Map column = columns.describe(e.children().apply(0));
      return column == null ? null : texts.of(e, column);
    }
    // Spark writes `ok = true` as `ok`.
    if (e.dataType() instanceof BooleanType) return compare("=", e, Literal$.MODULE$.TrueLiteral());
    return null;
  }

  private Map compare(String op, String mirrored, Expression e) {
    Expression left = e.children().apply(0);
    Expression right = e.children().apply(1);
    if (left instanceof Literal) {
      return compare(mirrored, right, (Literal) left);
    }
    return right instanceof Literal ? compare(op, left, (Literal) right) : null;
  }

  private Map compare(String op, Expression e, Literal literal) {
    if (literal.value() == null || !MessageWriter.takes(literal.dataType())) return null;
    Map column = columns.describe(e);
    if (column != null) return nodes.compare(op, column, literal);
    if (e instanceof Substring) {
      Substring beginning = (Substring) e;
      Map text = columns.describe(beginning.str());
      return text == null ? null : texts.beginning(op, beginning, text, literal);
    }
    if (!literal.dataType().equals(e.dataType())) return null;
    Monotonic function = Monotonic.of(e);
    if (function == null) return null;
    Object outcome = literal.value();
    List holds = function.ranges(op, outcome);
    return weak(function, holds, function.ranges(opposite(op), outcome));
  }

  /** What the outcome of functions says of the column in them: it is within some ranges where the
      condition is true, and within others where it is false. */
  private Map weak(Monotonic function, List holds, List fails) {
    Map column = holds == null || fails == null ? null : columns.describe(function.column());
    if (column == null) return null;
    DataType type = function.column().dataType();
    return nodes.weak(
        nodes.within(column, type, holds, ""), nodes.within(column, type, fails, ""));
  }

  private static String opposite(String op) {
    return op.equals("<") ? ">=" : op.equals("<=") ? ">" : op.equals(">") ? "<="
        : op.equals(">=") ? "<" : "<>";
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
    if (texts.size() > KeyRanges.ASKED) return null;
    List legs = new ArrayList();
    for (int i = 0; i < texts.size(); i++) {
      Map leg = compare("=", e, new Literal(texts.get(i), e.dataType()));
      if (leg == null) return null;
      legs.add(leg);
    }
    return nodes.join(Protocol.OR, legs);
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
    legs.add(nodes.not(isNull));
    return nodes.join(Protocol.AND, legs);
  }

  private Map isNull(Expression column) {
    Map identity = columns.describe(column);
    return identity == null ? null : nodes.leaf(Protocol.NULL, identity);
  }

  private Map in(Expression column, List values) {
    if (!MessageWriter.takes(column.dataType())) return null;
    List there = new ArrayList();
    for (int i = 0; i < values.size(); i++) {
      if (values.get(i) != null) there.add(values.get(i));
    }
    Map identity = columns.describe(column);
    if (identity == null) {
      Map one = column instanceof Substring ? beginnings((Substring) column, there)
          : outcomes(column, there);
      // NOT IN (2, NULL) is never true.
      return one == null || there.size() == values.size() ? one : nodes.weak(one, nodes.nothing());
    }
    return nodes.in(identity, column.dataType(), there, there.size() < values.size());
  }
}
