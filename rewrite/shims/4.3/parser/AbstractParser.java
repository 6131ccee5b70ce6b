package rewrite.jvm.parser;

import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.parser.SqlStatementSplitResult;
import org.apache.spark.sql.catalyst.parser.TemporalIdentifier;

/**
 * The parts of a parser that differ between Spark lines.
 *
 * <p>Since 4.3 the parser splits scripts, and knows the names of table versions.
 */
abstract class AbstractParser extends ParameterParser {
  protected AbstractParser(ParserInterface next) {
    super(next);
  }

  public SqlStatementSplitResult splitStatements(String text) {
    return next.splitStatements(text);
  }

  public TemporalIdentifier parseTemporalTableIdentifier(String text) throws ParseException {
    return next.parseTemporalTableIdentifier(text);
  }
}
