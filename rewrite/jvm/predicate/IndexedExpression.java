package rewrite.jvm.predicate;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.analysis.FunctionRegistry$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute$;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.CurrentTimestampLike;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Nondeterministic;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.internal.SessionState;
import rewrite.jvm.bridge.Json;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.Functions;
import rewrite.jvm.shims.Values;

/** An expression to index: its text, or why it is refused, and how to compute it. */
public final class IndexedExpression {
  private static final String NOT_ONE =
      "it does not give one value for each row, as aggregates, windows and generators do not";

  private static final String SUBQUERY = "it has a subquery";

  private ExpressionText text;
  private Expression optimized;
  private String refusal;

  /** Takes SQL over the columns of a frame, and their identities by dotted names, as JSON. */
  public IndexedExpression(Dataset<?> columnsOf, String sql, String columns) throws Exception {
    Map<String, Object> identities = Json.read(columns.getBytes(StandardCharsets.UTF_8));
    SessionState session = columnsOf.sparkSession().sessionState();
    refusal = unresolvable(session.sqlParser().parseExpression(sql));
    if (refusal != null) return;
    Dataset<?> frame = columnsOf.selectExpr(ScalaInterop.asScala(List.of(sql)));
    Expression analyzed = only(frame.queryExecution().analyzed());
    refusal = analyzed == null ? NOT_ONE : refusal(analyzed);
    if (refusal != null) return;
    optimized = only(frame.queryExecution().optimizedPlan());
    if (optimized == null) {
      refusal = NOT_ONE;
      return;
    }
    optimized = Casts.bare(optimized);
    if (Conditions.path(optimized) != null) {
      refusal = "it is only a column: index that";
      return;
    }
    if (optimized.references().isEmpty()) {
      refusal = "it is the same in all rows";
      return;
    }
    String setting = ExpressionText.findChangedSetting(session.conf());
    ColumnResolver resolver = path -> Json.text(identities, MessageWriter.joinPath(path));
    text = ExpressionText.of(optimized, resolver);
    refusal = setting != null ? setting + " is not as by default" : text.refusal();
  }

  /** Return why an expression is refused before analysis, or null. Analysis lists the files of
      tables in subqueries, and evaluates identifiers and schemas, perhaps with functions that are
      not Spark's. */
  private static String unresolvable(Expression e) {
    if (e instanceof PlanExpression) return SUBQUERY;
    if (e.getClass().getSimpleName().equals("ExpressionWithUnresolvedIdentifier")) {
      return "it has an identifier that is computed";
    }
    if (e instanceof UnresolvedFunction function) {
      String last = function.nameParts().last();
      boolean isBuiltin = function.nameParts().size() == 1
          && FunctionRegistry$.MODULE$.builtin().functionExists(Functions.name(last));
      if (!isBuiltin) return last + ExpressionText.UNLISTED;
    }
    return ScalaInterop.findFirst(e.children(), IndexedExpression::unresolvable);
  }

  private static Expression only(LogicalPlan plan) {
    if (!(plan instanceof Project project)) return null;
    if (project.projectList().size() != 1 || !project.child().children().isEmpty()) return null;
    Expression e = (Expression) project.projectList().head();
    return e instanceof Alias alias ? alias.child() : e;
  }

  /** Return why an expression is refused before Spark evaluates its constants, or null. */
  private static String refusal(Expression e) {
    if (e instanceof PlanExpression) return SUBQUERY;
    boolean isCurrent = e instanceof CurrentTimestampLike || e.prettyName().startsWith("current_");
    if (isCurrent || e instanceof Nondeterministic) {
      return e.prettyName() + " does not give the same each time";
    }
    if (e instanceof RuntimeReplaceable function) return refusal(function.replacement());
    if (Conditions.path(e) == null && !ExpressionText.isListed(e)) {
      return ExpressionText.unlistedReason(e);
    }
    return ScalaInterop.findFirst(e.children(), IndexedExpression::refusal);
  }

  public String refusal() {
    return refusal;
  }

  /** Return the text, which is the identity of the expression. */
  public String text() {
    return text.text();
  }

  public String type() {
    return optimized.dataType().catalogString();
  }

  /** Return the dotted names of the columns in it, as JSON. */
  public String read() {
    return Json.write(text.read());
  }

  /** Return the expression over renamed columns: flat names by dotted ones, as JSON. */
  public Column over(String flat) throws IOException {
    Map<String, Object> names = Json.read(flat.getBytes(StandardCharsets.UTF_8));
    return Values.column(over(optimized, names));
  }

  private static Expression over(Expression e, Map<String, Object> flat) {
    List<String> path = Conditions.path(e);
    if (path != null) {
      return UnresolvedAttribute$.MODULE$.quoted(Json.text(flat, MessageWriter.joinPath(path)));
    }
    return e.mapChildren(child -> over(child, flat));
  }
}
