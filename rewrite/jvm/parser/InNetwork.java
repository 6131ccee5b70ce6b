package rewrite.jvm.parser;

import java.util.Collections;
import java.util.Map;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.FunctionIdentifier;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionInfo;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.apache.spark.sql.types.BooleanType$;
import org.apache.spark.sql.types.NullType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.RecentMap;
import rewrite.jvm.shims.Functions;

/**
 * The SQL function `in_network(ip, network)`.
 *
 * <p>Spark replaces it by the condition that Python writes for the network. That condition has only
 * Spark's own expressions: sources can push it down, indexes can evaluate it, and executors need
 * none of our classes.
 */
public final class InNetwork {
  private static final FunctionIdentifier NAME = Functions.name("in_network");
  private static final String COLUMN = "ip"; // as Python writes it
  private static final int MAX_LENGTH = 64; // characters; a network has fewer
  private static final int CACHED = 1024;

  private final IndexClient client;
  private final ExpressionInfo info =
      new ExpressionInfo(
          InNetwork.class.getName(), null, NAME.funcName(),
          "_FUNC_(ip, network) - Returns whether the text `ip` is an address of a network.",
          "\n    Arguments:\n"
              + "      * ip - a text\n"
              + "      * network - a constant text of IPv4 such as '10.1.0.0/16'\n",
          "", "", "", "", "", "");
  private final Map<String, String> conditions =
      Collections.synchronizedMap(new RecentMap<>(CACHED));

  public InNetwork(IndexClient client) {
    this.client = client;
  }

  /** Adds the function to sessions that begin later. */
  public void inject(SparkSessionExtensions extensions) {
    extensions.injectFunction(new scala.Tuple3<>(NAME, info, this::create));
  }

  /** Adds the function to a session that has its functions already, unless the name is in use. */
  public void register(FunctionRegistry functions) {
    if (!functions.functionExists(NAME)) functions.registerFunction(NAME, info, this::create);
  }

  /** Returns the condition for some arguments; throws AnalysisException for invalid ones. */
  private Expression create(scala.collection.Seq<Expression> arguments) {
    if (arguments.size() != 2) {
      throw invalid("ip`, `network", "these two are needed, not " + arguments.size());
    }
    Expression address = arguments.apply(0);
    Expression network = arguments.apply(1);
    if (!isText(address)) throw invalid("ip", "it is no text");
    if (!address.deterministic()) throw invalid("ip", "it is another one each time");
    if (address.containsPattern(TreePattern$.MODULE$.PLAN_EXPRESSION())) {
      throw invalid("ip", "it has a subquery, which would be run for each part of the network:"
          + " give its outcome a name in FROM");
    }
    if (!isText(network) || !network.foldable()) throw invalid("network", "it is no constant text");
    UTF8String text = (UTF8String) network.eval(null);
    if (text == null) return new Literal(null, BooleanType$.MODULE$);
    if (text.numChars() > MAX_LENGTH) throw invalid("network", "it is too long");
    try {
      return insert(
          address, CatalystSqlParser$.MODULE$.parseExpression(condition(text.toString())));
    } catch (Exception failure) {
      Platform.throwException(failure);
      return null;
    }
  }

  private static boolean isText(Expression argument) {
    return argument.dataType() instanceof StringType || argument.dataType() instanceof NullType;
  }

  /** Replaces the column in Python's condition by the argument. */
  private static Expression insert(Expression address, Expression condition) {
    return condition instanceof UnresolvedAttribute column && column.name().equals(COLUMN)
        ? address
        : condition.mapChildren(child -> insert(address, child));
  }

  /** Returns Python's condition for a network. */
  private String condition(String network) {
    String cached = conditions.get(network);
    if (cached != null) return cached;
    try {
      String condition = client.condition(network);
      conditions.put(network, condition);
      return condition;
    } catch (IllegalArgumentException refused) {
      throw invalid("network", refused.getMessage());
    } catch (Throwable failure) {
      Failures.passOn(failure);
      throw invalid("network", Failures.describe(failure));
    }
  }

  private static RuntimeException invalid(String parameter, String reason) {
    scala.collection.immutable.Map<String, String> parameters =
        new scala.collection.immutable.Map.Map3<>(
            "parameter", "`" + parameter + "`", "functionName", "`" + NAME.funcName() + "`",
            "value", reason);
    Platform.throwException(new AnalysisException("INVALID_PARAMETER_VALUE.PATTERN", parameters));
    return null;
  }
}
