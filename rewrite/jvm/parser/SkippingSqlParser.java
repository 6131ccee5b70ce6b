package rewrite.jvm.parser;

import java.util.regex.Pattern;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.unsafe.Platform;
import rewrite.jvm.bridge.ClassLoaders;
import rewrite.jvm.bridge.Failures;

/**
 * A session's SQL parser that knows our statements and passes everything else on untouched.
 *
 * <p>Parsing checks the text and makes a command; the work is done once, when it is executed.
 */
public final class SkippingSqlParser extends AbstractParser {
  private static final Pattern WORDS =
      Pattern.compile("skipping|flint|recover|bloomfilter", Pattern.CASE_INSENSITIVE);

  private static final int LONGEST = 1 << 21;

  private final StatementCallback statements;

  public SkippingSqlParser(ParserInterface next, StatementCallback statements) {
    super(next);
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

  protected void passOn(Throwable failure) {
    if (failure instanceof AnalysisException) Platform.throwException(failure);
    Failures.passOn(failure);
  }

  /** Python says whether a text with one of our words is ours; others never leave Java. */
  protected LogicalPlan command(String text) {
    // Python refuses a statement that long, and sees by its first words that it is one.
    String head = text.length() > LONGEST ? text.substring(0, LONGEST) : text;
    return WORDS.matcher(head).find() ? SkippingCommand.parse(head, statements) : null;
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
