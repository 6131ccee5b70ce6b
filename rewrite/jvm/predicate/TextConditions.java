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
import org.apache.spark.sql.catalyst.expressions.Lower;
import org.apache.spark.sql.catalyst.expressions.RLike;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.catalyst.expressions.Substring;
import org.apache.spark.sql.catalyst.expressions.Upper;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.Protocol;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.Values;

/**
 * Translates conditions on the start, the end and the contents of the texts in a column, or of
 * their lower or upper case (`ignoresCase`).
 */
record TextConditions(ColumnRef column, boolean ignoresCase) {
  /** The start of a regular expression that ignores the case of ASCII. */
  private static final String ANY_CASE = "(?i)";

  /** Return the text in `lower(text)` or `upper(text)`, as in ILIKE; null for anything else. */
  static Expression uncased(Expression e) {
    return e instanceof Lower || e instanceof Upper ? e.children().head() : null;
  }

  /** Whether an expression is a condition on the text that is its first child. */
  static boolean isOne(Expression e) {
    return e instanceof StartsWith || e instanceof EndsWith || e instanceof Contains
        || e instanceof Like || e instanceof RLike || e instanceof LikeAll
        || e instanceof LikeAny;
  }

  /** Translate such a condition; null if it implies nothing. */
  Condition translate(Expression e) {
    if (e instanceof LikeAll all) return likeAll(all);
    if (e instanceof LikeAny any) return likeAny(any);
    if (!(e.children().last() instanceof Literal text) || text.value() == null) return null;
    if (e instanceof StartsWith) return match(Protocol.PREFIX, text, e);
    if (e instanceof EndsWith) return match(Protocol.SUFFIX, text, e);
    if (e instanceof Contains) return match(Protocol.CONTAINS, text, e);
    String pattern = text.value().toString();
    List<Condition> matches;
    if (e instanceof Like like) {
      matches = matches(TextPattern.like(pattern, like.escapeChar()));
    } else if (pattern.startsWith(ANY_CASE)) {
      TextPattern rest = TextPattern.regex(pattern.substring(ANY_CASE.length()));
      matches = new TextConditions(column, true).matches(rest);
    } else {
      matches = matches(TextPattern.regex(pattern));
    }
    return matches.isEmpty() ? null : weak(new Condition.AllOf(matches), e);
  }

  /** Translate a condition that is exactly a prefix, suffix or substring, or an equality with it. */
  Condition match(String op, Literal text, Expression e) {
    return ignoresCase
        ? weak(new Condition.TextMatch(Protocol.ANY_CASE, column, text), e)
        : new Condition.TextMatch(op, column, text);
  }

  private Condition likeAll(LikeAll e) {
    List<Condition> operands = like(ScalaInterop.asJava(e.patterns()));
    if (operands == null) return null;
    operands.removeIf(operand -> operand == null);
    return operands.isEmpty() ? null : weak(new Condition.AllOf(operands), e);
  }

  private Condition likeAny(LikeAny e) {
    List<Condition> operands = like(ScalaInterop.asJava(e.patterns()));
    return operands == null || operands.isEmpty() || operands.contains(null)
        ? null
        : weak(new Condition.AnyOf(operands), e);
  }

  /** Translate patterns with the default escape character, null for one that implies nothing;
      return null if a pattern is null. */
  private List<Condition> like(List<UTF8String> patterns) {
    List<Condition> operands = new ArrayList<>();
    for (UTF8String pattern : patterns) {
      if (pattern == null) return null;
      List<Condition> matches = matches(TextPattern.like(pattern.toString(), '\\'));
      operands.add(matches.isEmpty() ? null : new Condition.AllOf(matches));
    }
    return operands;
  }

  /** Return the conditions that every match of a pattern fulfils. */
  private List<Condition> matches(TextPattern pattern) {
    List<Condition> out = new ArrayList<>();
    if (pattern == null) return out;
    if (pattern.whole() != null) {
      add(out, Protocol.PREFIX, pattern.whole());
      return out;
    }
    add(out, Protocol.PREFIX, pattern.prefix());
    pattern.inner().forEach(text -> add(out, Protocol.CONTAINS, text));
    add(out, Protocol.SUFFIX, pattern.suffix());
    return out;
  }

  private void add(List<Condition> out, String op, String text) {
    if (text.isEmpty()) return;
    Literal literal = new Literal(UTF8String.fromString(text), DataTypes.StringType);
    out.add(new Condition.TextMatch(ignoresCase ? Protocol.ANY_CASE : op, column, literal));
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
