package rewrite.jvm.parser;

import java.util.regex.Pattern;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.parser.PositionMapper;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import rewrite.jvm.bridge.ClassLoaders;
import rewrite.jvm.bridge.Failures;

/**
 * A session's SQL parser that knows our statements and passes everything else on untouched.
 *
 * <p>Parsing checks the text and makes a command; the work is done once, when it is executed.
 */
public final class SkippingSqlParser implements ParserInterface {
  private static final Pattern WORDS =
      Pattern.compile("skipping|flint|recover|bloomfilter", Pattern.CASE_INSENSITIVE);

  private static final int LONGEST = 1 << 21;

  private final ParserInterface next;
  private final StatementCallback statements;

  public SkippingSqlParser(ParserInterface next, StatementCallback statements) {
    this.next = next;
    this.statements = statements;
  }

  public LogicalPlan parsePlan(String text) throws ParseException {
    try {
      LogicalPlan command = command(text);
      return command == null ? next.parsePlan(text) : command;
    } catch (Throwable failure) {
      passOn(failure);
      LogicalPlan plan = next.parsePlan(text);
      Failures.forgive(failure);
      return plan;
    }
  }

  // spark.sql comes this way since Spark 4.1.
  public LogicalPlan parsePlanWithParameters(String text, ParameterContext context)
      throws ParseException {
    try {
      PositionMapper bound = Parameters.bind(text, context);
      LogicalPlan command = command(bound == null ? text : bound.substitutedText());
      if (command != null) return command;
      return bound == null
          ? next.parsePlanWithParameters(text, context)
          : Parameters.parse(bound, next);
    } catch (Throwable failure) {
      passOn(failure);
      LogicalPlan plan = next.parsePlanWithParameters(text, context);
      Failures.forgive(failure);
      return plan;
    }
  }

  /** Throws what is wrong with a statement, of Spark's or of ours, and what ends a query. */
  private static void passOn(Throwable failure) {
    if (failure instanceof AnalysisException) Platform.throwException(failure);
    Failures.passOn(failure);
  }

  /** Python says whether a text with one of our words is ours; others never leave Java. */
  private LogicalPlan command(String text) {
    // Python refuses a statement that long, and sees by its first words that it is one.
    String head = text.length() > LONGEST ? text.substring(0, LONGEST) : text;
    return WORDS.matcher(head).find() ? SkippingCommand.parse(head, statements) : null;
  }

  public LogicalPlan parseQuery(String text) throws ParseException {
    return next.parseQuery(text);
  }

  public Expression parseExpression(String text) throws ParseException {
    return next.parseExpression(text);
  }

  public TableIdentifier parseTableIdentifier(String text) throws ParseException {
    return next.parseTableIdentifier(text);
  }

  public FunctionIdentifier parseFunctionIdentifier(String text) throws ParseException {
    return next.parseFunctionIdentifier(text);
  }

  public scala.collection.immutable.Seq parseMultipartIdentifier(String text)
      throws ParseException {
    return next.parseMultipartIdentifier(text);
  }

  public StructType parseTableSchema(String text) throws ParseException {
    return next.parseTableSchema(text);
  }

  public DataType parseDataType(String text) throws ParseException {
    return next.parseDataType(text);
  }

  public StructType parseRoutineParam(String text) throws ParseException {
    return next.parseRoutineParam(text);
  }

  /** What `injectParser` takes. */
  public static final class Inject extends scala.runtime.AbstractFunction2 {
    private final StatementCallback statements;

    public Inject(StatementCallback statements) {
      this.statements = statements;
    }

    public Object apply(Object session, Object parser) {
      try {
        ClassLoaders.mend((SparkSession) session);
        return new SkippingSqlParser((ParserInterface) parser, statements);
      } catch (Throwable failure) {
        // Not `forgive`: it reads settings, and those of a session that begins need its parser.
        Failures.passOn(failure);
        return parser; // this session has no statements of ours
      }
    }
  }
}
