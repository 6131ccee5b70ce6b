package rewrite.jvm.source;

import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.SubqueryExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import rewrite.jvm.bridge.Budget;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.LookupResponse;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.predicate.PredicateEncoder;
import rewrite.jvm.predicate.StaticKeys;

/**
 * The index's response for the conditions on a scan, stored on the scan in the logical plan: the
 * optimizer and the physical plan need the same one.
 *
 * <p>A response stays valid as long as the plan: a file never changes its rows. But a scan of plain
 * files is one object in all queries on the table, and the next query must see a newer index.
 * There, a response is valid for one query, which is known by its budget.
 */
public final class PlannedLookup {
  private static final TreeNodeTag<PlannedLookup> TAG = new TreeNodeTag<>("rewrite.lookup");

  private final Set<Expression> conditions;
  private final String revision;
  private final LookupResponse response;
  private final Budget budget;
  private final boolean isOfPlan;
  private double remaining = -1; // not counted

  private PlannedLookup(
      Set<Expression> conditions, String revision, LookupResponse response, Budget budget,
      boolean isOfPlan) {
    this.conditions = conditions;
    this.revision = revision;
    this.response = response;
    this.budget = budget;
    this.isOfPlan = isOfPlan;
  }

  /** Returns those of the conditions directly above a scan whose values are in the query's text, with
      the names of the scan's columns: the text may have them in another case. A condition after a
      random one would see other rows if files were pruned by it. */
  public static List<Expression> takeKnown(LogicalPlan leaf, List<Expression> conditions) {
    List<Expression> known =
        conditions.stream()
            .takeWhile(Expression::deterministic)
            .filter(each -> Conditions.dynamic(each) == null && !StaticKeys.isOne(each))
            .filter(each -> !SubqueryExpression.hasSubquery(each))
            .toList();
    List<AttributeReference> columns =
        ScalaInterop.asJava(leaf.output()).stream().map(AttributeReference.class::cast).toList();
    return ScalaInterop.asJava(
        DataSourceStrategy$.MODULE$.normalizeExprs(
            ScalaInterop.asScala(known), ScalaInterop.asScala(columns)));
  }

  /** Whether conditions compare columns with values. Spark adds IS NOT NULL for each join. */
  public static boolean haveValues(List<Expression> conditions) {
    return conditions.stream().anyMatch(each -> !(each instanceof IsNotNull));
  }

  /** Returns the response for some conditions on a scan whose table has an index. */
  public static LookupResponse of(
      LogicalPlan leaf, ScanSource source, TableStatistics statistics, IndexClient client,
      List<Expression> conditions) {
    return lookUp(leaf, source, statistics, client, conditions).response;
  }

  private static PlannedLookup lookUp(
      LogicalPlan leaf, ScanSource source, TableStatistics statistics, IndexClient client,
      List<Expression> conditions) {
    PlannedLookup known = findStored(List.of(leaf), source, client, conditions);
    if (known != null) return known;
    LookupResponse response =
        client.findPrunable(
            PredicateEncoder.request(
                source.table(), statistics.columns(source), conditions, List.of(), List.of()));
    PlannedLookup out =
        new PlannedLookup(
            canonicalize(conditions), client.revision(source.table()), response, client.budget(),
            ScanSources.isSnapshot(leaf));
    leaf.setTagValue(TAG, out);
    return out;
  }

  /** Returns the fraction of the bytes of a scan that some conditions leave; files that the index
      does not know remain. Files are counted once, because Spark repeats rules. */
  public static double computeRemaining(
      LogicalPlan leaf, ScanSource source, TableStatistics statistics, IndexClient client,
      List<Expression> conditions) {
    // Not what the leaf has now: another query may have put its own response there.
    PlannedLookup known = lookUp(leaf, source, statistics, client, conditions);
    if (known.remaining < 0) {
      FileCounter counter = new FileCounter(known.response, new StatisticsResult());
      try {
        if (known.response.prunesAny()) source.findPrunable(counter);
        known.remaining = counter.remainingFraction();
      } catch (Exception failure) {
        Failures.forgive(failure);
        known.remaining = 1;
      }
    }
    return known.remaining;
  }

  /** Returns the stored response for exactly these conditions, or null. */
  public static LookupResponse find(
      List<LogicalPlan> leaves, ScanSource source, IndexClient client,
      List<Expression> conditions) {
    PlannedLookup known = findStored(leaves, source, client, conditions);
    return known == null ? null : known.response;
  }

  private static PlannedLookup findStored(
      List<LogicalPlan> leaves, ScanSource source, IndexClient client,
      List<Expression> conditions) {
    PlannedLookup known =
        leaves.size() == 1 ? ScalaInterop.orNull(leaves.get(0).getTagValue(TAG)) : null;
    boolean isValid =
        known != null && known.isValid(client.budget())
            && known.conditions.equals(canonicalize(conditions))
            && Objects.equals(known.revision, client.revision(source.table()));
    return isValid ? known : null;
  }

  /** Makes the response on a scan that only one plan has valid as long as this plan. */
  static void keep(LogicalPlan leaf) {
    PlannedLookup known = ScalaInterop.orNull(leaf.getTagValue(TAG));
    if (known == null) return;
    PlannedLookup kept =
        new PlannedLookup(known.conditions, known.revision, known.response, known.budget, true);
    kept.remaining = known.remaining;
    leaf.setTagValue(TAG, kept);
  }

  /** A lookup that failed is not repeated until a new one may have time. */
  private boolean isValid(Budget current) {
    return budget == current || isOfPlan && (response.index() != null || !budget.isIdle());
  }

  private static Set<Expression> canonicalize(List<Expression> conditions) {
    Set<Expression> out = new HashSet<>();
    conditions.forEach(each -> out.add(each.canonicalized()));
    return out;
  }
}
