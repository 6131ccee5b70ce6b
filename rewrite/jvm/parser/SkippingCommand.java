package rewrite.jvm.parser;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.types.StructType;
import rewrite.jvm.bridge.Json;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.AbstractCommand;

/** One of our statements as a command: Python runs its text, once, in the session that executes. */
public final class SkippingCommand extends AbstractCommand {
  private final String text;
  private final scala.collection.immutable.List output;
  private final StatementCallback statements;

  // The arguments of the constructor are the product's elements: TreeNode.makeCopy relies on it,
  // and on equals of each, which a Python callback does not have; hence the class around it.
  public SkippingCommand(
      String text, scala.collection.immutable.List output, StatementCallback statements) {
    super();
    this.text = text;
    this.output = output;
    this.statements = statements;
  }

  /** The command that a text is, null if it is not ours; throws what Python says is wrong. */
  public static SkippingCommand parse(String text, StatementCallback statements) {
    Object parsed;
    try {
      parsed = statements.call(text, null);
    } catch (RuntimeException noPython) {
      return null; // a stale callback must not break a session's SQL
    }
    if (parsed == null) return null;
    String schema = (String) reply(parsed).get("schema");
    StructType columns = schema.isEmpty() ? new StructType() : StructType.fromDDL(schema);
    return new SkippingCommand(
        text, DataTypeUtils.toAttributes(columns).toList(), statements);
  }

  public scala.collection.immutable.List run(org.apache.spark.sql.SparkSession session) {
    Object result = statements.call(text, session);
    if (result instanceof String) reply(result);
    return ScalaInterop.asScala(((Dataset) result).collectAsList());
  }

  /** Python's reply, or the error it names. */
  private static Map reply(Object json) {
    try {
      Map reply = Json.read(((String) json).getBytes(StandardCharsets.UTF_8));
      if (reply.containsKey("error")) {
        // AnalysisException is checked, and Scala's `run` declares nothing.
        org.apache.spark.unsafe.Platform.throwException(error(reply));
      }
      return reply;
    } catch (java.io.IOException unreadable) {
      throw new IllegalStateException(unreadable);
    }
  }

  private static Throwable error(Map reply) {
    scala.collection.immutable.Map parameters =
        scala.collection.immutable.Map$.MODULE$.empty().updated("skipping", reply.get("key"));
    return new AnalysisException(
        (String) reply.get("error"), scala.Option.empty(), scala.Option.empty(),
        scala.Option.empty(), scala.Option.empty(), parameters,
        new org.apache.spark.QueryContext[0]);
  }

  public scala.collection.immutable.List output() {
    return output;
  }

  public AttributeSet producedAttributes() {
    return outputSet();
  }

  public Statistics stats() {
    return org.apache.spark.sql.catalyst.plans.logical.Statistics$.MODULE$.DUMMY();
  }

  public scala.collection.immutable.Map metrics() {
    return (scala.collection.immutable.Map) scala.collection.immutable.Map$.MODULE$.empty();
  }

  public String productPrefix() {
    return "SkippingIndexCommand";
  }

  public int productArity() {
    return 3;
  }

  public Object productElement(int i) {
    return i == 0 ? (Object) text : i == 1 ? (Object) output : (Object) statements;
  }

  public scala.collection.Iterator productIterator() {
    return scala.runtime.ScalaRunTime$.MODULE$.typedProductIterator(this);
  }

  public boolean canEqual(Object other) {
    return other instanceof SkippingCommand;
  }

  public boolean equals(Object other) {
    return this == other;
  }

  public int hashCode() {
    return System.identityHashCode(this);
  }
}
