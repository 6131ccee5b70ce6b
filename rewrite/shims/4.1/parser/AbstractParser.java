package rewrite.jvm.parser;

import org.apache.spark.sql.catalyst.parser.ParserInterface;

/** The parts of a parser that differ between Spark lines. */
abstract class AbstractParser extends ParameterParser {
  protected AbstractParser(ParserInterface next) {
    super(next);
  }
}
