package rewrite.jvm.parser;

import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.TableIdentifier;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.ParseException;
import org.apache.spark.sql.catalyst.parser.ParserInterface;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** A parser that passes everything but whole statements on to the next one. */
abstract class DelegatingParser implements ParserInterface {
  protected final ParserInterface next;

  protected DelegatingParser(ParserInterface next) {
    this.next = next;
  }

  /** Returns the command for one of our statements; null for any other text. */
  protected abstract LogicalPlan command(String text);

  /** Throws a failure again if it is an error in a statement, or must end the query. */
  protected abstract void passOn(Throwable failure);

  @Override public LogicalPlan parseQuery(String text) throws ParseException {
    return next.parseQuery(text);
  }

  @Override public Expression parseExpression(String text) throws ParseException {
    return next.parseExpression(text);
  }

  @Override public TableIdentifier parseTableIdentifier(String text) throws ParseException {
    return next.parseTableIdentifier(text);
  }

  @Override public FunctionIdentifier parseFunctionIdentifier(String text) throws ParseException {
    return next.parseFunctionIdentifier(text);
  }

  @Override public StructType parseTableSchema(String text) throws ParseException {
    return next.parseTableSchema(text);
  }

  @Override public DataType parseDataType(String text) throws ParseException {
    return next.parseDataType(text);
  }
}
