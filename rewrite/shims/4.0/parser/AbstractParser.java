package rewrite.jvm.parser;

import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * The parts of a parser that differ between Spark lines.
 *
 * <p>Since 4.0 there are parameters of routines; Spark binds those of statements in the plan.
 */
abstract class AbstractParser extends DelegatingParser {
  protected AbstractParser(ParserInterface next) {
    super(next);
  }

  public Seq<String> parseMultipartIdentifier(String text) throws ParseException {
    return next.parseMultipartIdentifier(text);
  }

  public StructType parseRoutineParam(String text) throws ParseException {
    return next.parseRoutineParam(text);
  }
}
