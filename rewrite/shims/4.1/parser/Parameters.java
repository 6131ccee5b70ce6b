package rewrite.jvm.parser;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.regex.Pattern;
import org.antlr.v4.runtime.CharStreams;
import org.antlr.v4.runtime.CommonTokenStream;
import org.antlr.v4.runtime.Token;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParameterHandler$;
import org.apache.spark.sql.catalyst.parser.ParameterLocation;
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
 * <p>Spark's parser does the same, but it is the innermost parser of a session. The parsers of Delta
 * and Iceberg inherit `parsePlanWithParameters` from the interface, which drops the parameters. So
 * the outermost parser substitutes them, with Spark's own code, and hands on text without any.
 */
final class Parameters {
  private static final String SELECT = "SELECT ";
  private static final Pattern NUMBER =
      Pattern.compile("-?[0-9]+(\\.[0-9]+)?(E-?[0-9]+)?(BD|[LSYD])");

  private Parameters() {}

  /**
   * The text with its values, and where they stand in it; null if there is nothing to replace.
   * Raises what Spark raises for parameters that are missing or mixed.
   */
  static PositionMapper bind(String text, ParameterContext context) {
    if (isEmpty(context) || (text.indexOf('?') < 0 && text.indexOf(':') < 0)) return null;
    // Spark binds them in the analyzed plan then.
    if (SQLConf$.MODULE$.get().legacyParameterSubstitutionConstantsOnly()) return null;
    // Spark replaces variables first: a value that looks like one stays as it is.
    String original = new VariableSubstitution().substitute(text);
    List found = locate(withoutPairs(original), context);
    Collections.sort(found, new ByStart());
    // The next parser replaces variables again. Where escapes stand for themselves, adjacent
    // strings do, which Spark joins, and our conditions do not take.
    boolean stand = SQLConf$.MODULE$.get().escapedStringLiterals();
    String variable = stand ? "$' '{" : "$\\" + "u007b";
    StringBuilder filled = new StringBuilder();
    List made = new ArrayList();
    int end = 0;
    for (Object each : found) {
      ParameterLocation location = ((Substitution) each).location();
      String value = ((Substitution) each).replacement().replace("${", variable);
      filled.append(original, end, location.start()).append(value);
      end = location.end();
      made.add(new Substitution(location, value));
    }
    filled.append(original.substring(end));
    return new PositionMapper(
        original, filled.toString(), ScalaInterop.asScala(made).toList());
  }

  /** Parses the filled text with `next`; errors and query contexts point into the original text. */
  static LogicalPlan parse(PositionMapper bound, ParserInterface next) {
    Origin here = CurrentOrigin$.MODULE$.get();
    Origin origin = new Origin(
        here.line(), here.startPosition(), new Some(Integer.valueOf(0)),
        new Some(Integer.valueOf(bound.originalText().length() - 1)),
        new Some(bound.originalText()),
        here.objectType(), here.objectName(), here.stackTrace(), here.pysparkErrorContext(),
        new Some(bound));
    return (LogicalPlan)
        CurrentOrigin$.MODULE$.withOrigin(origin, new Parse(bound.substitutedText(), next));
  }

  /** The three kinds of context each have a collection of values as their first element. */
  private static boolean isEmpty(ParameterContext context) {
    return context instanceof scala.Product
        && ((scala.collection.Iterable) ((scala.Product) context).productElement(0)).isEmpty();
  }

  /** Where Spark replaces parameters, and by what. */
  private static List locate(String text, ParameterContext context) {
    List tokens = tokens(text);
    String query = queryOf(text, tokens);
    try {
      // Only Spark's grammar tells `:name` from the path in `column:name`.
      if (query != null) return substitutions(query, context);
    } catch (Throwable error) {
      // It does not know the statements of Delta and Iceberg, nor ours.
      query = error instanceof ParseException ? markersOf(text, tokens) : null;
      if (query == null) Platform.throwException(error);
    }
    if (query == null) query = markersOf(text, tokens);
    List out = new ArrayList();
    if (query == null) return out; // the next parser says what is wrong
    for (Object each : substitutions(query, context)) {
      Substitution found = (Substitution) each;
      out.add(new Substitution(found.location(), withoutSuffix(found.replacement())));
    }
    return out;
  }

  private static List substitutions(String text, ParameterContext context) {
    return ScalaInterop.asJava(
        ParameterHandler$.MODULE$.substituteParameters(text, context)._2()
            .substitutions());
  }

  /** A number as every grammar has it: Iceberg reads `5L` as a number and cannot convert it. */
  private static String withoutSuffix(String value) {
    return NUMBER.matcher(value).matches() ? value.replaceAll("[A-Z]+$", "") : value;
  }

  /** ANTLR counts code points, Spark's substitution counts characters: no pair makes them equal. */
  private static String withoutPairs(String text) {
    StringBuilder out = new StringBuilder(text);
    for (int i = 0; i < out.length(); i++) {
      if (Character.isSurrogate(out.charAt(i))) out.setCharAt(i, '_');
    }
    return out.toString();
  }

  /**
   * What Spark may read of a text: of EXPLAIN SKIPPING and VERIFY SKIPPING the query, at its place.
   * Null for REFRESH SKIPPING, which Spark would take for REFRESH with a path.
   */
  private static String queryOf(String text, List tokens) {
    if (!is(tokens, 1, "SKIPPING")) return text;
    if (!is(tokens, 0, "EXPLAIN") && !is(tokens, 0, "VERIFY")) {
      return is(tokens, 0, "REFRESH") ? null : text;
    }
    int last = is(tokens, 2, "DRY") && is(tokens, 3, "RUN") ? 3 : 1;
    int end = ((Token) tokens.get(last)).getStopIndex() + 1;
    return blanks(end) + text.substring(end);
  }

  private static boolean is(List tokens, int place, String word) {
    return place < tokens.size() && word.equalsIgnoreCase(((Token) tokens.get(place)).getText());
  }

  /** A query that selects the parameters of a text, each at its place; null for no statement. */
  private static String markersOf(String text, List tokens) {
    StringBuilder query = new StringBuilder(blanks(text.length()));
    int start = -1;
    int end = 0;
    for (int i = 0; i < tokens.size(); i++) {
      Token token = (Token) tokens.get(i);
      Token last = token;
      if (token.getType() == SqlBaseLexer.UNRECOGNIZED) return null; // such as an open quote
      if (token.getType() == SqlBaseLexer.COLON) {
        Token name = i + 1 < tokens.size() ? (Token) tokens.get(i + 1) : null;
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

  private static String blanks(int length) {
    char[] blanks = new char[length];
    Arrays.fill(blanks, ' ');
    return new String(blanks);
  }

  /** What Spark's lexer makes of a text, without white space and comments. */
  private static List tokens(String text) {
    SqlBaseLexer lexer =
        new SqlBaseLexer(new UpperCaseCharStream(CharStreams.fromString(text)));
    lexer.removeErrorListeners();
    CommonTokenStream stream = new CommonTokenStream(lexer);
    stream.fill();
    List out = new ArrayList();
    for (Object each : stream.getTokens()) {
      Token token = (Token) each;
      if (token.getChannel() == Token.DEFAULT_CHANNEL && token.getType() != Token.EOF) {
        out.add(token);
      }
    }
    return out;
  }

  private static final class ByStart implements Comparator {
    public int compare(Object one, Object other) {
      return Integer.compare(((Substitution) one).start(), ((Substitution) other).start());
    }
  }

  private static final class Parse extends scala.runtime.AbstractFunction0 {
    private final String text;
    private final ParserInterface next;

    Parse(String text, ParserInterface next) {
      this.text = text;
      this.next = next;
    }

    public Object apply() {
      try {
        return next.parsePlan(text);
      } catch (ParseException wrong) {
        Platform.throwException(wrong);
        return null;
      }
    }
  }
}
