package rewrite.jvm.parser;

import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import scala.collection.Seq;

/**
 * The parts of a parser that differ between Spark lines.
 *
 * <p>Until 3.5 there are no parameters of routines; see 4.0.
 */
abstract class AbstractParser extends DelegatingParser {
  protected AbstractParser(ParserInterface next) {
    super(next);
  }

  public Seq<String> parseMultipartIdentifier(String text) throws ParseException {
    return next.parseMultipartIdentifier(text);
  }
}
