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

  /** Returns one of our statements as a command; null for any other text. */
  protected abstract LogicalPlan command(String text);

  /** Throws what is wrong with a statement, and what ends a query. */
  protected abstract void passOn(Throwable failure);

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

  public StructType parseTableSchema(String text) throws ParseException {
    return next.parseTableSchema(text);
  }

  public DataType parseDataType(String text) throws ParseException {
    return next.parseDataType(text);
  }
}
