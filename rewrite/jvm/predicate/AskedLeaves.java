package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.BinaryOperator;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.catalyst.expressions.Substring;
import rewrite.jvm.bridge.Protocol;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * What the conditions on a scan, and the joins with it, ask of which column or expression, without
 * the values that they compare with: those are data. Statistics for ANALYZE: nothing is pruned by
 * them.
 *
 * <p>Each is a map: `condition`, as people read it; `identity` of the column, or the text of an
 * expression (ExpressionText); its `name` for people; `sql` to make an index of; whether it is
 * `computed`; its `form`; the number of `keys`, 0 if it is not known. Where values of several
 * columns are asked for together, `(a, b) IN (?)`, `parts` are the identities of these columns, and
 * it has none of its own.
 */
public final class AskedLeaves {
  public static final String VALUES = "values";
  public static final String RANGE = "range";
  public static final String TEXT = "text";

  private static final List NONE = Collections.emptyList();
  private static final int MOST = 32;
  private static final int MOST_VISITED = 1000;
  /** Columns that are asked together: a composite of more is a copy of the table. */
  private static final int MOST_TOGETHER = 4;
  private static final int MOST_KEYS = 1000000;

  /** The constants in an expression that say what it computes, by function and place. They are
      formats, paths, positions and separators; of an expression with any other it is not kept what
      it is: a constant may be somebody's name. */
  private static final Set STRUCTURE = new HashSet(Arrays.asList(new Object[] {
    "DateFormatClass 1", "GetJsonObject 1", "GetTimestamp 1", "Pmod 1", "Remainder 1", "Round 1",
    "Substring 1", "Substring 2", "SubstringIndex 1", "SubstringIndex 2", "TruncDate 1",
    "TruncTimestamp 0"
  }));

  private final ColumnResolver columns;
  private final Map found = new LinkedHashMap();
  private int visited;

  private AskedLeaves(ColumnResolver columns) {
    this.columns = columns;
  }

  /** Those of conditions, and of the keys of joins, a list for each join, that are expressions over
      columns that are known. */
  public static List of(List conditions, List joins, ColumnResolver columns) {
    AskedLeaves leaves = new AskedLeaves(columns);
    List legs = new ArrayList();
    for (int i = 0; i < conditions.size(); i++) {
      legs.addAll(Conditions.conjuncts((Expression) conditions.get(i)));
    }
    leaves.visitAll(legs);
    for (int i = 0; i < joins.size(); i++) {
      List keys = (List) joins.get(i);
      for (int j = 0; j < keys.size(); j++) {
        leaves.add((Expression) keys.get(j), VALUES, " IN (keys)", 0);
      }
      leaves.together(keys, " IN (keys)", 0);
    }
    return new ArrayList(leaves.found.values());
  }

  /** The legs of an And, and what they ask together: equality, or a list, of several columns. */
  private void visitAll(List legs) {
    List equal = new ArrayList();
    long keys = 1;
    for (int i = 0; i < legs.size() && visited < MOST_VISITED; i++) {
      Expression leg = (Expression) legs.get(i);
      visit(leg);
      List values = ListedValues.in(leg);
      Expression column = values == null ? compared(leg) : first(leg);
      boolean isValues =
          values != null || leg instanceof EqualTo || leg instanceof EqualNullSafe;
      if (!isValues || column == null) continue;
      equal.add(column);
      keys = Math.min(MOST_KEYS, keys * (values == null ? 1 : Math.max(1, values.size())));
    }
    together(equal, " IN (?)", (int) keys);
  }

  private void visit(Expression e) {
    if (found.size() >= MOST || ++visited > MOST_VISITED) return;
    Tuples tuples = Tuples.of(e);
    if (tuples != null) {
      together(tuples.columns(), " IN (?)", tuples.rows().size());
    } else if (e instanceof And) {
      visitAll(Conditions.flatten(e));
    } else if (e instanceof Or) {
      List legs = Conditions.flatten(e);
      for (int i = 0; i < legs.size() && visited < MOST_VISITED; i++) {
        visit((Expression) legs.get(i));
      }
    } else if (e instanceof EqualTo || e instanceof EqualNullSafe) {
      add(compared(e), VALUES, " = ?", 1);
    } else if (e instanceof LessThan || e instanceof LessThanOrEqual
        || e instanceof GreaterThan || e instanceof GreaterThanOrEqual) {
      add(compared(e), RANGE, " BETWEEN ? AND ?", 1);
    } else if (e instanceof StartsWith) {
      add(first(e), RANGE, " LIKE '?%'", 1);
    } else if (TextConditions.isOne(e)) {
      add(first(e), TEXT, " LIKE '%?%'", 1);
    } else {
      List values = ListedValues.in(e);
      if (values != null) add(first(e), VALUES, " IN (?)", values.size());
    }
  }

  private static Expression first(Expression e) {
    return e.children().apply(0);
  }

  /** What a comparison compares with a constant; null: it compares with none. */
  private static Expression compared(Expression e) {
    if (e.children().size() != 2) return null;
    Expression other = e.children().apply(1);
    if (first(e) instanceof Literal) return other;
    return other instanceof Literal ? first(e) : null;
  }

  /** Several columns; of what is no column it is as if it were not there. */
  private void together(List expressions, String how, int keys) {
    Map identities = new TreeMap(); // the order of the columns means nothing
    for (int i = 0; i < expressions.size(); i++) {
      Expression bare = Casts.bare((Expression) expressions.get(i));
      List path = Conditions.path(bare);
      Map known = path == null ? null : columns.describe(path, bare.dataType());
      if (known != null) identities.put(known.get(Protocol.NAME), known.get(Protocol.IDENTITY));
    }
    if (identities.size() < 2 || identities.size() > MOST_TOGETHER) return;
    String name = "(" + String.join(", ", identities.keySet()) + ")";
    List parts = new ArrayList(identities.values());
    put("", parts, name, name, false, name + how, VALUES, keys);
  }

  private void add(Expression e, String form, String how, int keys) {
    if (e == null) return;
    Expression bare = Casts.bare(e);
    List path = Conditions.path(bare);
    if (path != null) {
      column(path, bare, null, form, how, keys);
      return;
    }
    if (!form.equals(TEXT)) {
      // A function that keeps order is asked of the index of its column, as a range.
      Monotonic function = Monotonic.of(e);
      Expression inner =
          function != null ? function.column()
              : e instanceof Substring ? ((Substring) e).str() : null;
      path = inner == null ? null : Conditions.path(inner);
      if (path != null) {
        column(path, inner, Conditions.shape(e), RANGE, how, keys);
        return;
      }
    }
    String text = bare instanceof Literal
        ? null : ExpressionText.of(bare, columns).text();
    Expression named = text == null ? null : named(bare);
    if (named == null) return;
    String sql = sql(named);
    put(text, NONE, Conditions.shape(bare), sql, true, sql + how, form, keys);
  }

  /** An expression as SQL, without the parentheses around all of it. */
  private static String sql(Expression e) {
    String sql = e.sql();
    boolean isWrapped = e instanceof BinaryOperator && sql.startsWith("(");
    return isWrapped ? sql.substring(1, sql.length() - 1) : sql;
  }

  private void column(
      List path, Expression column, String shape, String form, String how, int keys) {
    Map known = columns.describe(path, column.dataType());
    if (known == null) return;
    String name = (String) known.get(Protocol.NAME);
    String condition = (shape == null ? name : shape) + how;
    put((String) known.get(Protocol.IDENTITY), NONE, name, name, false, condition, form, keys);
  }

  private void put(
      String identity, List parts, String name, String sql, boolean computed, String condition,
      String form, int keys) {
    Map there = (Map) found.get(condition);
    if (there != null) {
      int more = Math.min(MOST_KEYS, keys + ((Integer) there.get("keys")).intValue());
      there.put("keys", Integer.valueOf(more));
      return;
    }
    if (found.size() >= MOST) return;
    Map out = new HashMap();
    out.put("condition", condition);
    out.put("identity", identity);
    out.put("parts", parts);
    out.put("name", name);
    out.put("sql", sql);
    out.put("computed", Boolean.valueOf(computed));
    out.put("form", form);
    out.put("keys", Integer.valueOf(keys));
    found.put(condition, out);
  }

  /** An expression over the bare names of its columns; null: it has a constant that may be data. */
  private static Expression named(Expression e) {
    List path = Conditions.path(e);
    if (path != null) return new UnresolvedAttribute(ScalaInterop.seq(path));
    List children = ScalaInterop.list(e.children());
    for (int i = 0; i < children.size(); i++) {
      Expression child = (Expression) children.get(i);
      boolean isConstant = child instanceof Literal;
      if (isConstant && !STRUCTURE.contains(e.getClass().getSimpleName() + " " + i)) return null;
      Expression now = isConstant ? child : named(child);
      if (now == null) return null;
      children.set(i, now);
    }
    return e.withNewChildren(ScalaInterop.seq(children));
  }
}
