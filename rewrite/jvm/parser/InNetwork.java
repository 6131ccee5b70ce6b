package rewrite.jvm.parser;

import java.util.LinkedHashMap;
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
import rewrite.jvm.shims.Functions;

/**
 * The function `in_network(ip, network)`, for those who have SQL only.
 *
 * <p>It stands for the condition that Python writes for the network, which is of Spark's own
 * expressions: sources get it, indexes are asked it, and executors need nothing of ours.
 */
public final class InNetwork extends scala.runtime.AbstractFunction1 {
  private static final FunctionIdentifier NAME = Functions.name("in_network");
  private static final String COLUMN = "ip"; // as Python writes it
  private static final int LONGEST = 64; // characters; those of a network are fewer
  private static final int KEPT = 1024;

  private final IndexClient client;
  private final ExpressionInfo info =
      new ExpressionInfo(
          InNetwork.class.getName(), null, NAME.funcName(),
          "_FUNC_(ip, network) - Returns whether the text `ip` is an address of a network.",
          "\n    Arguments:\n"
              + "      * ip - a text\n"
              + "      * network - a constant text of IPv4 such as '10.1.0.0/16'\n",
          "", "", "", "", "", "");
  private final Map known = new LinkedHashMap(16, 0.75f, true) {
    protected boolean removeEldestEntry(Map.Entry eldest) {
      return size() > KEPT;
    }
  };

  public InNetwork(IndexClient client) {
    this.client = client;
  }

  /** Gives it to sessions to be. */
  public void inject(SparkSessionExtensions extensions) {
    extensions.injectFunction(new scala.Tuple3(NAME, info, this));
  }

  /** Gives it to a session that has its functions already, unless it has one of this name. */
  public void register(FunctionRegistry functions) {
    if (!functions.functionExists(NAME)) functions.registerFunction(NAME, info, this);
  }

  /** The expression for some arguments; throws AnalysisException for wrong ones. */
  public Object apply(Object given) {
    scala.collection.Seq arguments = (scala.collection.Seq) given;
    if (arguments.size() != 2) {
      throw wrong("ip`, `network", "these two are needed, not " + arguments.size());
    }
    Expression address = (Expression) arguments.apply(0);
    Expression network = (Expression) arguments.apply(1);
    if (!isText(address)) throw wrong("ip", "it is no text");
    if (!address.deterministic()) throw wrong("ip", "it is another one each time");
    if (address.containsPattern(TreePattern$.MODULE$.PLAN_EXPRESSION())) {
      throw wrong("ip", "it has a subquery, which would be run for each part of the network:"
          + " give its outcome a name in FROM");
    }
    if (!isText(network) || !network.foldable()) throw wrong("network", "it is no constant text");
    UTF8String text = (UTF8String) network.eval(null);
    if (text == null) return new Literal(null, BooleanType$.MODULE$);
    if (text.numChars() > LONGEST) throw wrong("network", "it is too long");
    try {
      return CatalystSqlParser$.MODULE$.parseExpression(condition(text.toString()))
          .transformUp(new Replaced(address));
    } catch (Exception failure) {
      Platform.throwException(failure);
      return null;
    }
  }

  private static boolean isText(Expression argument) {
    return argument.dataType() instanceof StringType || argument.dataType() instanceof NullType;
  }

  /** Python's text for a network. */
  private String condition(String network) {
    String text;
    synchronized (known) {
      text = (String) known.get(network);
    }
    if (text != null) return text;
    try {
      text = client.condition(network);
    } catch (IllegalArgumentException refused) {
      throw wrong("network", refused.getMessage());
    } catch (Throwable failure) {
      Failures.passOn(failure);
      throw wrong("network", Failures.describe(failure));
    }
    synchronized (known) {
      known.put(network, text);
    }
    return text;
  }

  private static RuntimeException wrong(String parameter, String why) {
    scala.collection.immutable.Map<String, String> parameters =
        new scala.collection.immutable.Map.Map3<>(
            "parameter", "`" + parameter + "`", "functionName", "`" + NAME.funcName() + "`",
            "value", why);
    Platform.throwException(new AnalysisException("INVALID_PARAMETER_VALUE.PATTERN", parameters));
    return null;
  }

  /** Puts the argument where Python's text has the column. */
  private static final class Replaced extends scala.runtime.AbstractPartialFunction {
    private final Expression address;

    Replaced(Expression address) {
      this.address = address;
    }

    public boolean isDefinedAt(Object node) {
      return node instanceof UnresolvedAttribute
          && ((UnresolvedAttribute) node).name().equals(COLUMN);
    }

    public Object applyOrElse(Object node, scala.Function1 otherwise) {
      return isDefinedAt(node) ? address : otherwise.apply(node);
    }
  }
}
