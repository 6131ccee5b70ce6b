package rewrite.jvm.parser;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.plans.logical.Statistics;
import org.apache.spark.sql.catalyst.plans.logical.Statistics$;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.Platform;
import rewrite.jvm.bridge.Json;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.AbstractCommand;
import scala.Option;
import scala.collection.immutable.List;
import scala.collection.immutable.Map$;
import scala.runtime.ScalaRunTime$;

/** The command for one of our statements: Python runs its text in the session that executes it. */
public final class SkippingCommand extends AbstractCommand {
  private final String text;
  private final List<Attribute> output;
  private final StatementCallback statements;

  // The arguments of the constructor are the product's elements: TreeNode.makeCopy relies on it,
  // and on equals of each, which a Python callback does not have; hence the class around it.
  public SkippingCommand(String text, List<Attribute> output, StatementCallback statements) {
    this.text = text;
    this.output = output;
    this.statements = statements;
  }

  /** Returns the command for a text; null if it is not ours; throws the error that Python finds. */
  public static SkippingCommand parse(String text, StatementCallback statements) {
    String json;
    try {
      json = statements.parse(text);
    } catch (RuntimeException noPython) {
      return null; // a stale callback must not break a session's SQL
    }
    if (json == null) return null;
    String schema = Json.text(read(json), "schema");
    StructType columns = schema.isEmpty() ? new StructType() : StructType.fromDDL(schema);
    return new SkippingCommand(
        text, ScalaInterop.asScala(ScalaInterop.asJava(DataTypeUtils.toAttributes(columns))),
        statements);
  }

  @Override public List<Row> run(SparkSession session) {
    StatementCall call = statements.run(text, session);
    if (call.json() != null) read(call.json());
    return ScalaInterop.asScala(call.rows().collectAsList());
  }

  /** Reads a reply of Python's; throws the error in it. */
  private static Map<String, Object> read(String json) {
    try {
      Map<String, Object> reply = Json.read(json.getBytes(StandardCharsets.UTF_8));
      // AnalysisException is checked, and Scala's `run` declares nothing.
      if (reply.containsKey("error")) Platform.throwException(error(reply));
      return reply;
    } catch (IOException unreadable) {
      throw new IllegalStateException(unreadable);
    }
  }

  private static AnalysisException error(Map<String, Object> reply) {
    return new AnalysisException(
        Json.text(reply, "error"), Option.empty(), Option.empty(), Option.empty(), Option.empty(),
        new scala.collection.immutable.Map.Map1<>("skipping", Json.text(reply, "key")),
        new QueryContext[0]);
  }

  @Override public List<Attribute> output() {
    return output;
  }

  @Override public AttributeSet producedAttributes() {
    return outputSet();
  }

  @Override public Statistics stats() {
    return Statistics$.MODULE$.DUMMY();
  }

  @Override public scala.collection.immutable.Map<String, SQLMetric> metrics() {
    return Map$.MODULE$.empty();
  }

  @Override public String productPrefix() {
    return "SkippingIndexCommand";
  }

  @Override public int productArity() {
    return 3;
  }

  @Override public Object productElement(int i) {
    return i == 0 ? text : i == 1 ? output : statements;
  }

  @Override public scala.collection.Iterator<Object> productIterator() {
    return ScalaRunTime$.MODULE$.typedProductIterator(this);
  }

  @Override public boolean canEqual(Object other) {
    return other instanceof SkippingCommand;
  }

  @Override public boolean equals(Object other) {
    return this == other;
  }

  @Override public int hashCode() {
    return System.identityHashCode(this);
  }
}
