package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;
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

/** Translates conditions on the start, the end and the contents of texts. */
final class TextConditions {
  private TextConditions() {}

  /** Whether an expression is a condition on the text that is its first child. */
  static boolean isOne(Expression e) {
    return e instanceof StartsWith || e instanceof EndsWith || e instanceof Contains
        || e instanceof Like || e instanceof RLike || e instanceof LikeAll
        || e instanceof LikeAny;
  }

  /** Translate such a condition on a column; null if it implies nothing. */
  static Condition of(Expression e, ColumnRef column) {
    if (e instanceof LikeAll all) return likeAll(all, column);
    if (e instanceof LikeAny any) return likeAny(any, column);
    if (!(e.children().last() instanceof Literal text) || text.value() == null) return null;
    if (e instanceof StartsWith) return new Condition.TextMatch(Protocol.PREFIX, column, text);
    if (e instanceof EndsWith) return new Condition.TextMatch(Protocol.SUFFIX, column, text);
    if (e instanceof Contains) return new Condition.TextMatch(Protocol.CONTAINS, column, text);
    String pattern = text.value().toString();
    List<Condition> matches =
        matches(
            e instanceof Like like
                ? TextPattern.like(pattern, like.escapeChar())
                : TextPattern.regex(pattern),
            column);
    return matches.isEmpty() ? null : weak(new Condition.AllOf(matches), e);
  }

  private static Condition likeAll(LikeAll e, ColumnRef column) {
    List<Condition> operands = like(ScalaInterop.asJava(e.patterns()), column);
    if (operands == null) return null;
    operands.removeIf(operand -> operand == null);
    return operands.isEmpty() ? null : weak(new Condition.AllOf(operands), e);
  }

  private static Condition likeAny(LikeAny e, ColumnRef column) {
    List<Condition> operands = like(ScalaInterop.asJava(e.patterns()), column);
    return operands == null || operands.isEmpty() || operands.contains(null)
        ? null
        : weak(new Condition.AnyOf(operands), e);
  }

  /** Translate patterns with the default escape character, null for one that implies nothing;
      return null if a pattern is null. */
  private static List<Condition> like(List<UTF8String> patterns, ColumnRef column) {
    List<Condition> operands = new ArrayList<>();
    for (UTF8String pattern : patterns) {
      if (pattern == null) return null;
      List<Condition> matches = matches(TextPattern.like(pattern.toString(), '\\'), column);
      operands.add(matches.isEmpty() ? null : new Condition.AllOf(matches));
    }
    return operands;
  }

  /** Return the conditions that every match of a pattern fulfils. */
  private static List<Condition> matches(TextPattern pattern, ColumnRef column) {
    List<Condition> out = new ArrayList<>();
    if (pattern == null) return out;
    if (pattern.whole() != null) {
      add(out, Protocol.PREFIX, pattern.whole(), column);
      return out;
    }
    add(out, Protocol.PREFIX, pattern.prefix(), column);
    pattern.inner().forEach(text -> add(out, Protocol.CONTAINS, text, column));
    add(out, Protocol.SUFFIX, pattern.suffix(), column);
    return out;
  }

  private static void add(List<Condition> out, String op, String text, ColumnRef column) {
    if (text.isEmpty()) return;
    Literal literal = new Literal(UTF8String.fromString(text), DataTypes.StringType);
    out.add(new Condition.TextMatch(op, column, literal));
  }

  /** Return a condition whose negation implies nothing. */
  private static Condition weak(Condition holds, Expression e) {
    return new Condition.Weak(holds, new Condition.Unknown("NOT " + Conditions.shape(e)));
  }

  /**
   * Translate the comparison of `substr(a, 1, n)` with a text exactly; null if it is not at the
   * start.
   *
   * <p>A start is at most `a`, so `a < text` implies the same for the start. The start is also less
   * if it equals the start of a longer text.
   */
  static Condition compareStart(String op, Substring e, ColumnRef column, Literal literal) {
    Object from = value(e.pos());
    boolean isStart = Integer.valueOf(1).equals(from) || Integer.valueOf(0).equals(from);
    if (!isStart || !(value(e.len()) instanceof Integer length) || length < 1) return null;
    if (!literal.dataType().equals(e.dataType())) return null;
    // Not for binary values.
    if (!(literal.value() instanceof UTF8String text) || !Values.isUtf8(text)) return null;
    int excess = text.numChars() - length;
    Condition starts =
        new Condition.TextMatch(
            Protocol.PREFIX, column, new Literal(text.substring(0, length), literal.dataType()));
    if (op.equals("=")) {
      if (excess > 0) return Condition.NOTHING;
      return excess == 0 ? starts : new Condition.Comparison(column, "=", literal);
    }
    boolean isStrict = op.equals("<") || op.equals(">=");
    Condition less = new Condition.Comparison(column, isStrict ? "<" : "<=", literal);
    boolean isCut = isStrict ? excess > 0 : excess >= 0;
    if (isCut) less = new Condition.AnyOf(List.of(less, starts));
    return op.startsWith(">") ? new Condition.Negation(less) : less;
  }

  private static Object value(Expression e) {
    return e instanceof Literal literal ? literal.value() : null;
  }
}
