package rewrite.jvm.parser;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.regex.Pattern;
import org.antlr.v4.runtime.CharStreams;
import org.antlr.v4.runtime.CommonTokenStream;
import org.antlr.v4.runtime.Token;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParameterHandler$;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.parser.PositionMapper;
import org.apache.spark.sql.catalyst.parser.SqlBaseLexer;
import org.apache.spark.sql.catalyst.parser.Substitution;
import org.apache.spark.sql.catalyst.parser.UpperCaseCharStream;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.CurrentOrigin$;
import org.apache.spark.sql.catalyst.trees.Origin;
import org.apache.spark.sql.internal.SQLConf$;
import org.apache.spark.sql.internal.VariableSubstitution;
import org.apache.spark.unsafe.Platform;
import rewrite.jvm.bridge.ScalaInterop;
import scala.Some;

/**
 * Puts the values of a statement's parameters into its text.
 *
 * <p>Spark's parser does the same, but it is the innermost parser of a session. The parsers of
 * Delta and Iceberg inherit `parsePlanWithParameters` from the interface, which drops the
 * parameters. So the outermost parser substitutes them, with Spark's own code, and passes on text
 * without any.
 */
final class Parameters {
  private static final String SELECT = "SELECT ";
  private static final Pattern NUMBER =
      Pattern.compile("-?[0-9]+(\\.[0-9]+)?(E-?[0-9]+)?(BD|[LSYD])");

  private Parameters() {}

  /**
   * Returns the text with its values and their positions; null if there is nothing to replace.
   * Throws what Spark throws for parameters that are missing or mixed.
   */
  static PositionMapper bind(String text, ParameterContext context) {
    if (isEmpty(context) || (text.indexOf('?') < 0 && text.indexOf(':') < 0)) return null;
    // Spark binds them in the analyzed plan then.
    if (SQLConf$.MODULE$.get().legacyParameterSubstitutionConstantsOnly()) return null;
    // Spark replaces variables first: a value that looks like one stays as it is.
    String original = new VariableSubstitution().substitute(text);
    List<Substitution> found = locate(replacePairs(original), context);
    found.sort(Comparator.comparingInt(Substitution::start));
    // The next parser replaces variables again. If escapes are off, adjacent strings do instead,
    // which Spark joins, and our conditions do not accept.
    boolean hasNoEscapes = SQLConf$.MODULE$.get().escapedStringLiterals();
    String variable = hasNoEscapes ? "$' '{" : "$\\" + "u007b";
    StringBuilder out = new StringBuilder();
    List<Substitution> substitutions = new ArrayList<>();
    int end = 0;
    for (Substitution each : found) {
      String value = each.replacement().replace("${", variable);
      out.append(original, end, each.location().start()).append(value);
      end = each.location().end();
      substitutions.add(new Substitution(each.location(), value));
    }
    out.append(original.substring(end));
    return new PositionMapper(original, out.toString(), ScalaInterop.asScala(substitutions));
  }

  /** Parses the text with values; errors and query contexts point into the original text. */
  static LogicalPlan parse(PositionMapper bound, ParserInterface next) {
    Origin here = CurrentOrigin$.MODULE$.get();
    Origin origin = new Origin(
        here.line(), here.startPosition(), new Some<>(0),
        new Some<>(bound.originalText().length() - 1), new Some<>(bound.originalText()),
        here.objectType(), here.objectName(), here.stackTrace(), here.pysparkErrorContext(),
        new Some<>(bound));
    return CurrentOrigin$.MODULE$.withOrigin(
        origin,
        () -> {
          try {
            return next.parsePlan(bound.substitutedText());
          } catch (ParseException wrong) {
            Platform.throwException(wrong);
            return null;
          }
        });
  }

  /** The three kinds of context each have a collection of values as their first element. */
  private static boolean isEmpty(ParameterContext context) {
    return context instanceof scala.Product product
        && ((scala.collection.Iterable<?>) product.productElement(0)).isEmpty();
  }

  /** Returns where Spark replaces parameters, and by what. */
  private static List<Substitution> locate(String text, ParameterContext context) {
    List<Token> tokens = tokenize(text);
    String query = findQuery(text, tokens);
    try {
      // Only Spark's grammar tells `:name` from the path in `column:name`.
      if (query != null) return substitute(query, context);
    } catch (Throwable error) {
      // It does not know the statements of Delta and Iceberg, nor ours.
      query = error instanceof ParseException ? selectMarkers(text, tokens) : null;
      if (query == null) Platform.throwException(error);
    }
    if (query == null) query = selectMarkers(text, tokens);
    List<Substitution> out = new ArrayList<>();
    if (query == null) return out; // the next parser raises the error
    for (Substitution each : substitute(query, context)) {
      out.add(new Substitution(each.location(), removeSuffix(each.replacement())));
    }
    return out;
  }

  private static List<Substitution> substitute(String text, ParameterContext context) {
    return ScalaInterop.asJava(
        ParameterHandler$.MODULE$.substituteParameters(text, context)._2().substitutions());
  }

  /** Returns a number without its type: Iceberg reads `5L` as a number and cannot convert it. */
  private static String removeSuffix(String value) {
    return NUMBER.matcher(value).matches() ? value.replaceAll("[A-Z]+$", "") : value;
  }

  /** ANTLR counts code points, Spark's substitution counts characters: no pair makes them equal. */
  private static String replacePairs(String text) {
    StringBuilder out = new StringBuilder(text);
    for (int i = 0; i < out.length(); i++) {
      if (Character.isSurrogate(out.charAt(i))) out.setCharAt(i, '_');
    }
    return out.toString();
  }

  /**
   * Returns what Spark may read of a text: for EXPLAIN SKIPPING and VERIFY SKIPPING the query, at
   * its place. Null for REFRESH SKIPPING, which Spark would take for REFRESH with a path.
   */
  private static String findQuery(String text, List<Token> tokens) {
    if (!is(tokens, 1, "SKIPPING")) return text;
    if (!is(tokens, 0, "EXPLAIN") && !is(tokens, 0, "VERIFY")) {
      return is(tokens, 0, "REFRESH") ? null : text;
    }
    int last = is(tokens, 2, "DRY") && is(tokens, 3, "RUN") ? 3 : 1;
    int end = tokens.get(last).getStopIndex() + 1;
    return " ".repeat(end) + text.substring(end);
  }

  private static boolean is(List<Token> tokens, int place, String word) {
    return place < tokens.size() && word.equalsIgnoreCase(tokens.get(place).getText());
  }

  /** Returns a query that selects the parameters of a text, each at its place; null if the text is
      no statement. */
  private static String selectMarkers(String text, List<Token> tokens) {
    StringBuilder query = new StringBuilder(" ".repeat(text.length()));
    int start = -1;
    int end = 0;
    for (int i = 0; i < tokens.size(); i++) {
      Token token = tokens.get(i);
      Token last = token;
      if (token.getType() == SqlBaseLexer.UNRECOGNIZED) return null; // such as an open quote
      if (token.getType() == SqlBaseLexer.COLON) {
        Token name = i + 1 < tokens.size() ? tokens.get(i + 1) : null;
        if (name == null || name.getStartIndex() != token.getStopIndex() + 1) continue;
        if (!Character.isJavaIdentifierStart(text.charAt(name.getStartIndex()))) continue;
        // `a:b` is no parameter.
        int before = token.getStartIndex() - 1;
        if (before >= 0 && Character.isJavaIdentifierPart(text.charAt(before))) continue;
        last = name;
      } else if (token.getType() != SqlBaseLexer.QUESTION) {
        continue;
      }
      if (start < 0) {
        start = token.getStartIndex();
      } else {
        query.setCharAt(end, ',');
      }
      end = last.getStopIndex() + 1;
      query.replace(token.getStartIndex(), end, text.substring(token.getStartIndex(), end));
    }
    if (start < 0) return "";
    if (start < SELECT.length()) return null; // nothing is that short
    return query.replace(0, SELECT.length(), SELECT).toString();
  }

  /** Returns the tokens of Spark's lexer, without white space and comments. */
  private static List<Token> tokenize(String text) {
    SqlBaseLexer lexer =
        new SqlBaseLexer(new UpperCaseCharStream(CharStreams.fromString(text)));
    lexer.removeErrorListeners();
    CommonTokenStream stream = new CommonTokenStream(lexer);
    stream.fill();
    return stream.getTokens().stream()
        .filter(token ->
            token.getChannel() == Token.DEFAULT_CHANNEL && token.getType() != Token.EOF)
        .toList();
  }
}
