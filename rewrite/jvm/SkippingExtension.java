package rewrite.jvm;

import java.io.IOException;
import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.concurrent.ExecutorService;
import java.util.function.BiFunction;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.PythonCallback;
import rewrite.jvm.bridge.SessionSettings;
import rewrite.jvm.join.JoinPruningRule;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.observe.ExecutionLog;
import rewrite.jvm.observe.ScanReport;
import rewrite.jvm.parser.InNetwork;
import rewrite.jvm.parser.SkippingSqlParser;
import rewrite.jvm.parser.StatementCallback;
import rewrite.jvm.predicate.IndexedExpression;
import rewrite.jvm.scan.FilePruningRule;
import rewrite.jvm.scan.PhysicalScans;
import rewrite.jvm.source.BoundRule;
import rewrite.jvm.source.TableFormats;
import rewrite.jvm.source.TableStatistics;

/**
 * One installation: builds what the packages have, hands each what it needs, and is what Python
 * holds of it.
 *
 * <p>Either Python creates it and injects it into a running session, or Spark does when it starts a
 * session with `spark.sql.extensions=rewrite.jvm.SkippingExtension`. Until Python has connected to
 * it, all files are read.
 */
public final class SkippingExtension extends scala.runtime.AbstractFunction1 {
  /** By Spark's extensions, what was injected into them. */
  public static final Map INJECTED = Collections.synchronizedMap(new WeakHashMap());

  private final PythonCallback python = new PythonCallback();
  private final IndexClient client = new IndexClient(python);
  private final PruningFeedback feedback = new PruningFeedback();
  private final TableStatistics statistics = new TableStatistics(client);
  private final PhysicalScans physical = new PhysicalScans(client, feedback, statistics);
  private final StatementCallback statements = new StatementCallback();
  private final InNetwork network = new InNetwork(client);
  private final ScanReport scans =
      new ScanReport(
          client.budgets(), physical, new FilePruningRule(client, feedback, physical, false));
  private final ExecutionLog executions = new ExecutionLog(scans);

  /** Puts the rules, the parser and the function into sessions to be. */
  public Object apply(Object given) {
    SparkSessionExtensions extensions = (SparkSessionExtensions) given;
    extensions.injectColumnar(
        new FilePruningRule.Inject(new FilePruningRule(client, feedback, physical, true)));
    extensions.injectResolutionRule(
        new JoinPruningRule.Inject(
            new JoinPruningRule(client, feedback.registry(), feedback, statistics)));
    extensions.injectParser(new SkippingSqlParser.Inject(statements));
    network.inject(extensions);
    INJECTED.put(extensions, this);
    return scala.runtime.BoxedUnit.UNIT;
  }

  /** `asks` answers messages and `states` statements, of those who know the `secret`; large
      messages are left in `folder`. See PythonCallback and StatementCallback. */
  public void connect(
      BiFunction asks, BiFunction states, String secret, String folder, SparkContext context) {
    python.connect(asks, secret, folder);
    statements.connect(states, secret);
    context.addSparkListener(executions);
  }

  /** Finds table formats; see TableFormats. */
  public void loadFormats(ClassLoader loader) {
    TableFormats.load(loader);
  }

  /** Gives the function to a session that has run SQL, and so has its functions already. */
  public void register(SparkSession session) {
    network.register(session.sessionState().functionRegistry());
  }

  /** See IndexClient. */
  public void setAttached(boolean attached) {
    client.setAttached(attached);
  }

  /** See IndexClient. */
  public void setIndexed(String name, String tables) throws IOException {
    client.setIndexed(name, tables);
  }

  /** See BoundRule. */
  public void setBoundRules(String rules) throws IOException {
    BoundRule.use(rules);
  }

  /** See IndexClient. */
  public long plans() {
    return client.plans();
  }

  /** See IndexClient. */
  public ExecutorService threads() {
    return client.threads();
  }

  /** What asks Python. */
  public IndexClient client() {
    return client;
  }

  /** The settings of sessions by name. */
  public SessionSettings settings() {
    return client.settings();
  }

  /** An expression that is to be indexed, over the columns of a frame. See IndexedExpression. */
  public IndexedExpression expression(Dataset frame, String sql, String columns) throws Exception {
    return new IndexedExpression(frame, sql, columns);
  }

  /** Describes the scans of plans. */
  public ScanReport scans() {
    return scans;
  }

  /** What was executed. */
  public ExecutionLog executions() {
    return executions;
  }
}
