package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Contains;
import org.apache.spark.sql.catalyst.expressions.EndsWith;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.LikeAll;
import org.apache.spark.sql.catalyst.expressions.LikeAny;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.RLike;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.catalyst.expressions.Substring;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.Protocol;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.Values;

/** Conditions on how texts begin, end, and what is in them. */
final class TextConditions {
  private final ConditionNodes nodes;

  TextConditions(ConditionNodes nodes) {
    this.nodes = nodes;
  }

  /** Whether an expression is a condition on the text that is its first child. */
  static boolean isOne(Expression e) {
    return e instanceof StartsWith || e instanceof EndsWith || e instanceof Contains
        || e instanceof Like || e instanceof RLike || e instanceof LikeAll
        || e instanceof LikeAny;
  }

  /** Such a condition on a column; null: it has no form. */
  Map of(Expression e, Map column) {
    if (e instanceof LikeAll) return patterns(Protocol.AND, e, column, ((LikeAll) e).patterns());
    if (e instanceof LikeAny) return patterns(Protocol.OR, e, column, ((LikeAny) e).patterns());
    Object child = e.children().apply(1);
    if (!(child instanceof Literal) || ((Literal) child).value() == null) return null;
    Literal text = (Literal) child;
    if (e instanceof StartsWith) return nodes.text(Protocol.PREFIX, column, text);
    if (e instanceof EndsWith) return nodes.text(Protocol.SUFFIX, column, text);
    if (e instanceof Contains) return nodes.text(Protocol.CONTAINS, column, text);
    String pattern = text.value().toString();
    List demanded =
        demanded(
            e instanceof RLike
                ? TextPattern.regex(pattern)
                : TextPattern.like(pattern, ((Like) e).escapeChar()),
            column);
    return demanded.isEmpty() ? null : weak(nodes.join(Protocol.AND, demanded), e);
  }

  /** Of LIKE ALL and LIKE ANY, whose patterns have the escape character that there is. */
  private Map patterns(String op, Expression e, Map column, scala.collection.Iterable patterns) {
    List given = ScalaInterop.list(patterns);
    List legs = new ArrayList();
    for (int i = 0; i < given.size(); i++) {
      if (given.get(i) == null) return null;
      List demanded = demanded(TextPattern.like(given.get(i).toString(), '\\'), column);
      if (!demanded.isEmpty()) {
        legs.add(nodes.join(Protocol.AND, demanded));
      } else if (op.equals(Protocol.OR)) {
        return null;
      }
    }
    return legs.isEmpty() ? null : weak(nodes.join(op, legs), e);
  }

  /** Leaves that are true of what matches a pattern; none where there is none, or it is null. */
  private List demanded(TextPattern pattern, Map column) {
    List legs = new ArrayList();
    if (pattern == null) return legs;
    String whole = pattern.whole();
    if (whole != null) {
      if (!whole.isEmpty()) legs.add(nodes.text(Protocol.PREFIX, column, literal(whole)));
      return legs;
    }
    if (!pattern.prefix().isEmpty()) {
      legs.add(nodes.text(Protocol.PREFIX, column, literal(pattern.prefix())));
    }
    List inner = pattern.inner();
    for (int i = 0; i < inner.size(); i++) {
      legs.add(nodes.text(Protocol.CONTAINS, column, literal((String) inner.get(i))));
    }
    if (!pattern.suffix().isEmpty()) {
      legs.add(nodes.text(Protocol.SUFFIX, column, literal(pattern.suffix())));
    }
    return legs;
  }

  private static Literal literal(String text) {
    return new Literal(UTF8String.fromString(text), DataTypes.StringType);
  }

  /** A condition of which it is known what holds where it is true, not where it is false. */
  private Map weak(Map holds, Expression e) {
    return nodes.weak(holds, nodes.unknown("NOT " + Conditions.shape(e)));
  }

  /** `substr(a, 1, n)` beside a text, exactly. It comes before `a`, so what is before the text has
      a beginning before it, too; and so has what begins as the text does and is cut short of it. */
  Map beginning(String op, Substring e, Map column, Literal literal) {
    Object from = value(e.pos());
    Object n = value(e.len());
    boolean isBeginning = Integer.valueOf(1).equals(from) || Integer.valueOf(0).equals(from);
    if (!isBeginning || n == null || !literal.dataType().equals(e.dataType())) return null;
    if (!(literal.value() instanceof UTF8String)) return null; // of bytes
    UTF8String text = (UTF8String) literal.value();
    int length = ((Integer) n).intValue();
    if (length < 1 || !Values.isUtf8(text)) return null;
    int more = text.numChars() - length;
    Literal prefix = new Literal(text.substring(0, length), literal.dataType());
    Map begins = nodes.text(Protocol.PREFIX, column, prefix);
    if (op.equals("=")) {
      return more < 0 ? nodes.compare("=", column, literal)
          : more == 0 ? begins : nodes.nothing();
    }
    boolean isAfter = op.startsWith(">");
    String before = op.equals("<") || op.equals(">=") ? "<" : "<=";
    boolean isCut = before.equals("<") ? more > 0 : more >= 0;
    Map out = nodes.compare(before, column, literal);
    if (isCut) out = nodes.or(out, begins);
    return isAfter ? nodes.not(out) : out;
  }

  private static Object value(Expression e) {
    return e instanceof Literal ? ((Literal) e).value() : null;
  }
}
