package rewrite.jvm.parser;

import org.apache.spark.sql.catalyst.parser.ParameterContext;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.parser.PositionMapper;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.StructType;
import rewrite.jvm.bridge.Failures;
import scala.collection.immutable.Seq;

/** Since 4.1 statements come with their parameters, whose values the parser puts into the text. */
abstract class ParameterParser extends DelegatingParser {
  protected ParameterParser(ParserInterface next) {
    super(next);
  }

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

  public Seq<String> parseMultipartIdentifier(String text) throws ParseException {
    return next.parseMultipartIdentifier(text);
  }

  public StructType parseRoutineParam(String text) throws ParseException {
    return next.parseRoutineParam(text);
  }
}
