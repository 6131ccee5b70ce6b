package rewrite.jvm.predicate;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
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
import org.apache.spark.sql.types.DataType;
import rewrite.jvm.bridge.Json;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.shims.Functions;
import rewrite.jvm.shims.Values;

/** An expression that is to be indexed: its text, or why there is none, and how it is computed. */
public final class IndexedExpression {
  private static final String NOT_ONE =
      "it does not give one value for each row, as aggregates, windows and generators do not";

  private static final String SUBQUERY = "it has a subquery";

  private ExpressionText text;
  private Expression optimised;
  private String refusal;

  /** Of a text over the columns of a frame, of which `columns` are identities by dotted names, as
      JSON. */
  public IndexedExpression(Dataset columnsOf, String sql, String columns) throws Exception {
    Map identities = Json.read(columns.getBytes(StandardCharsets.UTF_8));
    SessionState session = columnsOf.sparkSession().sessionState();
    refusal = unresolvable(session.sqlParser().parseExpression(sql));
    if (refusal != null) return;
    Dataset frame = columnsOf.selectExpr(ScalaInterop.seq(Collections.singletonList(sql)));
    Expression analysed = only(frame.queryExecution().analyzed());
    refusal = analysed == null ? NOT_ONE : refusal(analysed);
    if (refusal != null) return;
    optimised = only(frame.queryExecution().optimizedPlan());
    if (optimised == null) {
      refusal = NOT_ONE;
      return;
    }
    optimised = Casts.bare(optimised);
    if (Conditions.path(optimised) != null) {
      refusal = "it is only a column: index that";
      return;
    }
    if (optimised.references().isEmpty()) {
      refusal = "it is the same in all rows";
      return;
    }
    String setting = ExpressionText.setting(session.conf());
    text = ExpressionText.of(optimised, new Named(identities));
    refusal = setting != null ? setting + " is not as by default" : text.refusal();
  }

  /** Why it is not even analysed: that lists the files of tables in subqueries, and computes what
      identifiers and schemas are made of, be it by functions that are not Spark's own. */
  private static String unresolvable(Expression e) {
    if (e instanceof PlanExpression) return SUBQUERY;
    if (e.getClass().getSimpleName().equals("ExpressionWithUnresolvedIdentifier")) {
      return "it has an identifier that is computed";
    }
    if (e instanceof UnresolvedFunction) {
      List name = ScalaInterop.list(((UnresolvedFunction) e).nameParts());
      String last = (String) name.get(name.size() - 1);
      boolean isBuiltin = name.size() == 1
          && FunctionRegistry$.MODULE$.builtin().functionExists(Functions.name(last));
      if (!isBuiltin) return last + ExpressionText.UNLISTED;
    }
    List children = ScalaInterop.list(e.children());
    for (int i = 0; i < children.size(); i++) {
      String why = unresolvable((Expression) children.get(i));
      if (why != null) return why;
    }
    return null;
  }

  private static Expression only(LogicalPlan plan) {
    if (!(plan instanceof Project)) return null;
    Project project = (Project) plan;
    if (project.projectList().size() != 1 || !project.child().children().isEmpty()) return null;
    Expression e = (Expression) project.projectList().head();
    return e instanceof Alias ? ((Alias) e).child() : e;
  }

  /** Why it is not even optimised: that computes constants, and so runs functions. */
  private static String refusal(Expression e) {
    if (e instanceof PlanExpression) return SUBQUERY;
    boolean isCurrent =
        e instanceof CurrentTimestampLike || e.prettyName().startsWith("current_");
    if (isCurrent || e instanceof Nondeterministic) {
      return e.prettyName() + " does not give the same each time";
    }
    if (e instanceof RuntimeReplaceable) return refusal(((RuntimeReplaceable) e).replacement());
    if (Conditions.path(e) == null && !ExpressionText.isListed(e)) {
      return ExpressionText.unlisted(e);
    }
    List children = ScalaInterop.list(e.children());
    for (int i = 0; i < children.size(); i++) {
      String why = refusal((Expression) children.get(i));
      if (why != null) return why;
    }
    return null;
  }

  /** Why it cannot be indexed; null: it can be. */
  public String refusal() {
    return refusal;
  }

  /** Its text, which is its identity. */
  public String text() {
    return text.text();
  }

  /** The type of its values, as Spark spells it. */
  public String type() {
    return optimised.dataType().catalogString();
  }

  /** The dotted names of the columns that it reads, as a list in JSON. */
  public String read() {
    return Json.write(new ArrayList(text.read()));
  }

  /** It, over columns of a frame that have others' names: flat ones by dotted ones, as JSON. */
  public Column over(String flat) throws IOException {
    Map names = Json.read(flat.getBytes(StandardCharsets.UTF_8));
    return Values.column(over(optimised, names));
  }

  private static Expression over(Expression e, Map flat) {
    List path = Conditions.path(e);
    if (path != null) {
      return UnresolvedAttribute$.MODULE$.quoted((String) flat.get(MessageWriter.dotted(path)));
    }
    List children = new ArrayList();
    for (Iterator each = ScalaInterop.list(e.children()).iterator(); each.hasNext(); ) {
      children.add(over((Expression) each.next(), flat));
    }
    return e.withNewChildren(ScalaInterop.seq(children));
  }

  /** The columns of a table whose names and identities are known. */
  private static final class Named implements ColumnResolver {
    private final Map identities;

    Named(Map identities) {
      this.identities = identities;
    }

    public String identity(List path) {
      return (String) identities.get(MessageWriter.dotted(path));
    }

    public Map describe(List path, DataType type) {
      String identity = identity(path);
      return identity == null ? null : MessageWriter.column(identity, path, type);
    }
  }
}
