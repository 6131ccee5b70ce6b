package rewrite.jvm.parser;

import java.util.regex.Pattern;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.unsafe.Platform;
import rewrite.jvm.bridge.ClassLoaders;
import rewrite.jvm.bridge.Failures;
import scala.runtime.AbstractFunction2;

/**
 * A session's SQL parser that recognizes our statements and passes on everything else untouched.
 *
 * <p>Parsing only checks the text. The command does its work when Spark executes it.
 */
public final class SkippingSqlParser extends AbstractParser {
  private static final Pattern WORDS =
      Pattern.compile("skipping|flint|recover|bloomfilter", Pattern.CASE_INSENSITIVE);

  private static final int MAX_LENGTH = 1 << 21;

  private final StatementCallback statements;

  public SkippingSqlParser(ParserInterface next, StatementCallback statements) {
    super(next);
    this.statements = statements;
  }

  @Override public LogicalPlan parsePlan(String text) throws ParseException {
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

  @Override protected void passOn(Throwable failure) {
    if (failure instanceof AnalysisException) Platform.throwException(failure);
    Failures.passOn(failure);
  }

  /** Asks Python whether a text with one of our words is a statement; other texts stay in Java. */
  @Override protected LogicalPlan command(String text) {
    // Python rejects a longer statement, and recognizes it by its first words.
    String head = text.length() > MAX_LENGTH ? text.substring(0, MAX_LENGTH) : text;
    return WORDS.matcher(head).find() ? SkippingCommand.parse(head, statements) : null;
  }

  /** The function for `injectParser`. Spark keeps it, and by that the owner, as long as sessions can
      begin. */
  public static final class Inject
      extends AbstractFunction2<SparkSession, ParserInterface, ParserInterface> {
    private final StatementCallback statements;
    private final Object owner;

    public Inject(StatementCallback statements, Object owner) {
      this.statements = statements;
      this.owner = owner;
    }

    @Override public ParserInterface apply(SparkSession session, ParserInterface parser) {
      try {
        ClassLoaders.repair(session);
        return new SkippingSqlParser(parser, statements);
      } catch (Throwable failure) {
        // Not `forgive`: it reads settings, and a session that begins needs its parser for them.
        Failures.passOn(failure);
        return parser; // this session does not have our statements
      }
    }
  }
}
