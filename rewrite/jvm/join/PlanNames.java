package rewrite.jvm.join;

import java.util.List;
import java.util.stream.Collectors;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.columnar.InMemoryRelation;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.Conditions;
import rewrite.jvm.shims.Sessions;

/** Describes a plan by its tables and conditions. */
final class PlanNames {
  private PlanNames() {}

  /** Return the names of a plan's tables, for explain. */
  static String tables(LogicalPlan plan) {
    StringBuilder out = new StringBuilder();
    for (LogicalPlan leaf : ScalaInterop.asJava(plan.collectLeaves())) {
      String name = name(leaf);
      if (out.indexOf(name) < 0) out.append(out.isEmpty() ? "" : ", ").append(name);
    }
    return out.toString();
  }

  private static String name(LogicalPlan leaf) {
    if (leaf instanceof InMemoryRelation cache) return tables(Sessions.cachedPlan(cache));
    if (leaf instanceof LogicalRelation relation) {
      if (relation.catalogTable().isDefined()) {
        return relation.catalogTable().get().identifier().table();
      }
      if (relation.relation() instanceof HadoopFsRelation files) {
        List<Path> roots = ScalaInterop.asJava(files.location().rootPaths());
        if (!roots.isEmpty()) return roots.get(0).getName();
      }
    }
    Identifier identifier =
        leaf instanceof DataSourceV2Relation table ? ScalaInterop.orNull(table.identifier())
        : leaf instanceof DataSourceV2ScanRelation scan
            ? ScalaInterop.orNull(scan.relation().identifier())
        : null;
    if (identifier != null) return identifier.name();
    return leaf instanceof LocalRelation ? "given rows" : leaf.nodeName();
  }

  /** Return the tables and the conditions on them, without values. */
  static String shape(LogicalPlan plan) {
    return tables(plan) + conditions(plan);
  }

  private static String conditions(LogicalPlan plan) {
    String own = plan instanceof Filter filter ? "\n" + Conditions.shape(filter.condition()) : "";
    return own
        + Repeatability.children(plan).stream()
            .map(PlanNames::conditions)
            .collect(Collectors.joining());
  }
}
