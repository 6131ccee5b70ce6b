package rewrite.jvm;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.util.Collections;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.function.BiFunction;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.SparkSessionExtensions;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.PythonCallback;
import rewrite.jvm.join.JoinPruningRule;
import rewrite.jvm.keys.PruningFeedback;
import rewrite.jvm.keys.PruningRegistry;
import rewrite.jvm.observe.ExecutionLog;
import rewrite.jvm.observe.ScanReport;
import rewrite.jvm.observe.SkippingTab;
import rewrite.jvm.parser.InNetwork;
import rewrite.jvm.parser.SkippingSqlParser;
import rewrite.jvm.parser.StatementCall;
import rewrite.jvm.parser.StatementCallback;
import rewrite.jvm.predicate.IndexedExpression;
import rewrite.jvm.scan.FilePruningRule;
import rewrite.jvm.scan.OwnScanStrategy;
import rewrite.jvm.scan.PhysicalScans;
import rewrite.jvm.scan.ScanSizeRule;
import rewrite.jvm.source.BoundRule;
import rewrite.jvm.source.TableFormats;
import rewrite.jvm.source.TableStatistics;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * One installation: creates and connects the objects of all packages, and is what Python
 * references.
 *
 * <p>Either Python creates it and injects it into a running session, or Spark does when it starts a
 * session with `spark.sql.extensions=rewrite.jvm.SkippingExtension`. Until Python connects to it,
 * all files are read.
 */
public final class SkippingExtension extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  /** The installation in each of Spark's extensions. Weak on both sides: an installation knows
      plans, so its session, which knows the extensions. They keep it by the function for parsers. */
  public static final Map<SparkSessionExtensions, WeakReference<SkippingExtension>> INJECTED =
      Collections.synchronizedMap(new WeakHashMap<>());

  private final PythonCallback python = new PythonCallback();
  private final IndexClient client = new IndexClient(python);
  private final PruningRegistry registry = new PruningRegistry();
  private final PruningFeedback feedback = new PruningFeedback();
  private final TableStatistics statistics = new TableStatistics(client);
  private final PhysicalScans physical = new PhysicalScans(client, registry, feedback, statistics);
  private final StatementCallback statements = new StatementCallback();
  private final InNetwork network = new InNetwork(client);
  private final ScanReport scans =
      new ScanReport(client.budgets(), physical, new FilePruningRule(physical, false));
  private final ExecutionLog executions = new ExecutionLog(scans);

  /** Adds the rules, the parser and the function to sessions that begin later. */
  @Override public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectColumnar(new FilePruningRule(physical, true).inject());
    // Delta's rule for its files runs with this one, and before it if Delta was injected before.
    extensions.injectPreCBORule(new ScanSizeRule(client, statistics, true).inject());
    extensions.injectPlannerStrategy(new OwnScanStrategy().inject());
    // The rules are added to the optimizer when the session's first plan is analyzed.
    extensions.injectResolutionRule(
        new JoinPruningRule.Inject(
            new ScanSizeRule(client, statistics, false),
            new JoinPruningRule(client, registry, feedback, statistics)));
    extensions.injectParser(new SkippingSqlParser.Inject(statements, this));
    network.inject(extensions);
    INJECTED.put(extensions, new WeakReference<>(this));
    return BoxedUnit.UNIT;
  }

  /** Connects to Python: `messages` handles requests and `statements` statements, and both accept
      only a caller with the `secret`. See PythonCallback and StatementCallback. */
  public void connect(
      BiFunction<String, Object, byte[]> messages,
      BiFunction<String, StatementCall, String> statements, String secret, String folder,
      SparkContext context) {
    python.connect(messages, secret, folder);
    this.statements.connect(statements, secret);
    context.addSparkListener(executions);
    SkippingTab.attach(context, client);
  }

  /** Finds table formats; see TableFormats. */
  public void loadFormats(ClassLoader loader) {
    TableFormats.load(loader);
  }

  /** Adds the function to a session that has run SQL, and so has its functions already. */
  public void register(SparkSession session) {
    network.register(session.sessionState().functionRegistry());
  }

  /** See BoundRule. */
  public void setBoundRules(String rules) throws IOException {
    BoundRule.use(rules);
  }

  public IndexClient client() {
    return client;
  }

  /** Analyzes SQL over the columns of a frame as an expression to index; see IndexedExpression. */
  public IndexedExpression expression(Dataset<?> frame, String sql, String columns)
      throws Exception {
    return new IndexedExpression(frame, sql, columns);
  }

  public ScanReport scans() {
    return scans;
  }

  public ExecutionLog executions() {
    return executions;
  }

  public PruningFeedback feedback() {
    return feedback;
  }
}
