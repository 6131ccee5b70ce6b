package rewrite.jvm.join;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningSubquery;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.catalyst.plans.InnerLike;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.JoinHint$;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.shims.DynamicKeys;
import rewrite.jvm.source.ScanSources;

/** The side of a join that says which keys there are: a plan, its join keys, which one it is. */
public class BuildSide {
  /** Whether keys are collected whatever they cost. Tests of results set it: most of their tables
      are too small for any benefit. */
  static boolean isCostIgnored;

  /** How many times greater a scan must be than a dimension without a condition: one that Spark
      broadcasts anyway, and one that is read again. */
  private static final int SMALL = 10;
  private static final int SMALL_TWICE = 100;

  private final LogicalPlan plan;
  private final List keys;
  private final int index;
  private final boolean hinted;
  private int hops;
  private boolean strict;
  private Object join = new Object();
  private int columns = 1;

  /** `hinted`: the query says that it is to be broadcast. */
  public BuildSide(LogicalPlan plan, List keys, int index, boolean hinted) {
    this.plan = CommandCounts.removed(plan);
    this.keys = keys;
    this.index = index;
    this.hinted = hinted;
  }

  public LogicalPlan plan() {
    return plan;
  }

  /** The same where keys that are too few would make rows, and not only lose some: a row without
      a partner is kept, or written. */
  BuildSide strictly() {
    strict = true;
    return this;
  }

  /** The same where others are of the same join: their keys are columns of the same rows, so many
      with this one. */
  BuildSide of(Object join, int columns) {
    this.join = join;
    this.columns = columns;
    return this;
  }

  /** How many columns of its rows are keys of its join, by equality. */
  int columns() {
    return columns;
  }

  /** What stands for its join. */
  Object join() {
    return join;
  }

  public Expression key() {
    return (Expression) keys.get(index);
  }

  /** Whether its keys can be compared with what the other side has. */
  boolean isComparable(Expression column) {
    return key().dataType().equals(column.dataType());
  }

  /** Whether Spark is going to broadcast it. */
  public boolean isBroadcast() {
    return hinted || PlanSize.isBroadcast(plan);
  }

  /** The tables that it reads, for people. */
  public String name() {
    return names(plan);
  }

  private static String names(LogicalPlan plan) {
    List leaves = ScalaInterop.asJava(plan.collectLeaves());
    StringBuilder out = new StringBuilder();
    for (int i = 0; i < leaves.size(); i++) {
      String name = name((LogicalPlan) leaves.get(i));
      if (out.indexOf(name) < 0) out.append(i == 0 ? "" : ", ").append(name);
    }
    return out.toString();
  }

  private static String name(LogicalPlan leaf) {
    if (leaf instanceof InMemoryRelation) return names(Rereading.cached(leaf));
    if (leaf instanceof LogicalRelation) {
      LogicalRelation relation = (LogicalRelation) leaf;
      if (relation.catalogTable().isDefined()) {
        return relation.catalogTable().get().identifier().table();
      }
      if (relation.relation() instanceof HadoopFsRelation) {
        HadoopFsRelation files = (HadoopFsRelation) relation.relation();
        List roots = ScalaInterop.asJava(files.location().rootPaths());
        if (!roots.isEmpty()) return ((org.apache.hadoop.fs.Path) roots.get(0)).getName();
      }
    }
    if (leaf instanceof DataSourceV2ScanRelation || leaf instanceof DataSourceV2Relation) {
      scala.Option identifier =
          leaf instanceof DataSourceV2Relation
              ? ((DataSourceV2Relation) leaf).identifier()
              : ((DataSourceV2ScanRelation) leaf).relation().identifier();
      if (identifier.isDefined()) return ((Identifier) identifier.get()).name();
    }
    return leaf instanceof LocalRelation ? "given rows" : leaf.nodeName();
  }

  /** Its tables and the conditions on them, without values. */
  public String shape() {
    StringBuilder out = new StringBuilder(name());
    shape(plan, out);
    return out.toString();
  }

  private static void shape(LogicalPlan plan, StringBuilder out) {
    if (plan instanceof Filter) {
      out.append('\n').append(Conditions.shape(((Filter) plan).condition()));
    }
    List children = Rereading.inside(plan);
    for (int i = 0; i < children.size(); i++) {
      shape((LogicalPlan) children.get(i), out);
    }
  }

  /** What reading it costs, in bytes: of each table all that is read, and once more for each
      shuffle on the way. */
  public scala.math.BigInt price() {
    return price(plan, null, new ArrayList(), 1);
  }

  /** The same of what the conditions on its tables leave of them. */
  scala.math.BigInt price(ScanShare left) {
    return price(plan, left, new ArrayList(), 1);
  }

  /** `above` are conditions directly above the plan. */
  private static scala.math.BigInt price(
      LogicalPlan plan, ScanShare left, List above, int times) {
    List children = ScalaInterop.asJava(plan.children());
    if (children.isEmpty()) {
      scala.math.BigInt all = plan.stats().sizeInBytes();
      double share = left == null ? 1 : left.of(plan, above);
      if (share < 1) all = scala.math.BigInt.apply((long) (share * all.doubleValue()));
      return all.$times(scala.math.BigInt.apply(times));
    }
    List conditions =
        plan instanceof Filter
            ? Conditions.conjuncts(((Filter) plan).condition())
            : new ArrayList();
    scala.math.BigInt sum = scala.math.BigInt.apply(0);
    for (int i = 0; i < children.size(); i++) {
      LogicalPlan child = (LogicalPlan) children.get(i);
      int more = PlanSize.isShuffled(plan) ? times + 1 : times;
      sum = sum.$plus(price(child, left, conditions, more));
    }
    return sum;
  }

  /** What in it may take long however few bytes it reads; null: nothing. A cache is filled once. */
  public String slow() {
    return Rereading.slow(plan);
  }

  /** Whether it is likely to have fewer keys than there are: some condition is on it. */
  public boolean selective() {
    return selective(plan);
  }

  /** Why it is not likely to have fewer keys than a scan of so many bytes; null: it is. */
  public String refusal(scala.math.BigInt bytes) {
    return selective() || isSmall(bytes) || isCostIgnored
        ? null
        : name() + " has no condition, and is not small against " + bytes + " bytes";
  }

  /** Whether it has few keys against what a scan of so many bytes has, though no condition says so.
   *
   * <p>Keys in vain cost at most what a small part of the scan costs, until feedback stops them.
   */
  private boolean isSmall(scala.math.BigInt bytes) {
    if (hinted) return true;
    int times = isBroadcast() ? SMALL : SMALL_TWICE;
    return price().$times(scala.math.BigInt.apply(times)).compareTo(bytes) <= 0;
  }

  private static boolean selective(LogicalPlan plan) {
    if (plan instanceof LocalRelation || Rereading.isLimit(plan)) return true;
    if (plan.isStreaming() && plan.children().isEmpty()) return true; // a batch is a part
    if (ScanSources.hasConditions(plan)) return true;
    if (plan instanceof Filter) {
      List conditions = Conditions.conjuncts(((Filter) plan).condition());
      for (int i = 0; i < conditions.size(); i++) {
        Object condition = conditions.get(i);
        boolean isKeys = Conditions.dynamic((Expression) condition) != null;
        if (!isKeys && !(condition instanceof IsNotNull)) return true;
      }
    }
    List children = Rereading.inside(plan);
    boolean all = plan instanceof Union;
    for (int i = 0; i < children.size(); i++) {
      if (selective((LogicalPlan) children.get(i)) != all) return !all;
    }
    return all;
  }

  /** Why its keys cannot be collected; null: they can. */
  public String refusal() {
    if (!Rereading.isDeterministic(plan)) return "the dimension is not deterministic";
    return refusal(plan);
  }

  private static String refusal(LogicalPlan plan) {
    if (plan instanceof CTERelationRef) return "the dimension is a common table that is kept apart";
    if (holdsKeys(plan)) return "the dimension waits for the keys of another one";
    List children = ScalaInterop.asJava(plan.children());
    for (int i = 0; i < children.size(); i++) {
      String refusal = refusal((LogicalPlan) children.get(i));
      if (refusal != null) return refusal;
    }
    return null;
  }

  /** What in it may give other rows when it is computed again; null: nothing. */
  public String fleeting() {
    return Rereading.fleeting(plan, strict);
  }

  private static boolean holdsKeys(LogicalPlan plan) {
    if (!(plan instanceof Filter)) return false;
    List conditions = Conditions.conjuncts(((Filter) plan).condition());
    for (int i = 0; i < conditions.size(); i++) {
      if (Conditions.dynamic((Expression) conditions.get(i)) != null) return true;
    }
    return false;
  }

  /** The condition on a column of the other side. */
  Expression on(Expression column, ExprId id, boolean onlyInBroadcast) {
    return DynamicKeys.of(
        asked(column), plan, ScalaInterop.asScala(keys), index, onlyInBroadcast, id);
  }

  /** What of a column has to be one of the keys. */
  Expression asked(Expression column) {
    return column;
  }

  /** Whether two stand for the same keys. */
  public boolean is(DynamicPruningSubquery there, Expression column) {
    List theirs = ScalaInterop.asJava(there.buildKeys());
    if (!there.pruningKey().semanticEquals(asked(column)) || theirs.size() != keys.size()) {
      return false;
    }
    if (DynamicKeys.index(there) != index) return false;
    for (int i = 0; i < keys.size(); i++) {
      if (!((Expression) theirs.get(i)).semanticEquals((Expression) keys.get(i))) return false;
    }
    return true;
  }

  /**
   * The least part of it that has the key and a condition: keys of a part are a superset.
   *
   * <p>Of `fact JOIN planes`, joined with a second fact by `planes.tailnum`, that is `planes`.
   */
  public BuildSide least() {
    LogicalPlan part = plan;
    LogicalPlan least = plan;
    AttributeSet needed = key().references();
    while (true) {
      List children = ScalaInterop.asJava(part.children());
      boolean passes =
          part instanceof Project
              || part instanceof Filter
              || part instanceof Join && ((Join) part).joinType() instanceof InnerLike;
      LogicalPlan next = null;
      for (int i = 0; passes && i < children.size(); i++) {
        LogicalPlan child = (LogicalPlan) children.get(i);
        if (needed.subsetOf(child.outputSet())) next = child;
      }
      if (next == null || !selective(next)) break;
      if (part instanceof Join) least = next;
      part = next;
    }
    if (least == plan) return this;
    BuildSide found = part(least);
    found.strict = strict;
    return found;
  }

  /** The same keys of a part of the plan. */
  BuildSide part(LogicalPlan least) {
    return new BuildSide(least, Collections.singletonList(key()), 0, false);
  }

  /** A plan whose scans do not wait for keys: who takes keys from it would wait for those, too. */
  private static LogicalPlan withoutKeys(LogicalPlan plan) {
    return plan.transformUp(new scala.runtime.AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return holdsKeys((LogicalPlan) node);
      }

      public Object applyOrElse(Object node, scala.Function1 otherwise) {
        if (!isDefinedAt(node)) return otherwise.apply(node);
        Filter filter = (Filter) node;
        List kept = Conditions.conjuncts(filter.condition());
        for (Iterator each = kept.iterator(); each.hasNext(); ) {
          if (Conditions.dynamic((Expression) each.next()) != null) each.remove();
        }
        return kept.isEmpty()
            ? filter.child()
            : filter.copy(Conditions.conjunction(kept), filter.child());
      }
    });
  }

  /** This one, by `key`, as a restriction of another table's column `column`: `dim JOIN this`. */
  public BuildSide through(LogicalPlan dim, Expression key, Expression column) {
    LogicalPlan joined =
        new Join(
            withoutKeys(dim), plan, Inner$.MODULE$,
            scala.Option.apply(new org.apache.spark.sql.catalyst.expressions.EqualTo(key, key())),
            JoinHint$.MODULE$.NONE());
    List output = new ArrayList(ScalaInterop.asJava(column.references().toSeq()));
    BuildSide through =
        new BuildSide(
            new Project(ScalaInterop.asScala(output), joined), Collections.singletonList(column), 0,
            false);
    through.hops = hops + 1;
    through.strict = strict;
    return through;
  }

  /** How many tables it has been joined with to restrict the next one. */
  int hops() {
    return hops;
  }
}
