package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.BinaryOperator;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.catalyst.expressions.Substring;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * Collects the columns and expressions that filters and joins compare, without the values, which
 * are data. These statistics are for ANALYZE; they prune nothing.
 *
 * <p>Each entry is a map: `condition`, for people; `identity` of the column, or the text of an
 * expression (ExpressionText); its `name` for people; `sql` to create an index; whether it is
 * `computed`; its `form`; the number of `keys`, 0 if unknown. A condition on several columns,
 * `(a, b) IN (?)`, has no identity, and its `parts` are those of the columns.
 */
public final class AskedLeaves {
  public static final String VALUES = "values";
  public static final String RANGE = "range";
  public static final String TEXT = "text";

  private static final int MAX_ENTRIES = 32;
  private static final int MAX_VISITS = 1000;
  /** An index on more columns would be a copy of the table. */
  private static final int MAX_COLUMNS = 4;
  private static final int MAX_KEYS = 1000000;

  /** The constants that say what an expression computes, by function and place: formats, paths,
      positions and separators. Expressions with other constants are not recorded: a constant may be
      somebody's name. */
  private static final Set<String> STRUCTURE = Set.of(
    "DateFormatClass 1", "GetJsonObject 1", "GetTimestamp 1", "Pmod 1", "Remainder 1", "Round 1",
    "Substring 1", "Substring 2", "SubstringIndex 1", "SubstringIndex 2", "TruncDate 1",
    "TruncTimestamp 0");

  private final ColumnResolver columns;
  private final Map<String, Map<String, Object>> entries = new LinkedHashMap<>();
  private int visits;

  private AskedLeaves(ColumnResolver columns) {
    this.columns = columns;
  }

  /** Collect entries from conditions, and from the keys of joins, a list for each join. */
  public static List<Map<String, Object>> of(
      List<Expression> conditions, List<? extends List<Expression>> joins, ColumnResolver columns) {
    AskedLeaves leaves = new AskedLeaves(columns);
    leaves.visitAll(
        conditions.stream().flatMap(each -> Conditions.conjuncts(each).stream()).toList());
    for (List<Expression> keys : joins) {
      keys.forEach(key -> leaves.add(key, VALUES, " IN (keys)", 0));
      leaves.addTogether(keys, " IN (keys)", 0);
    }
    return new ArrayList<>(leaves.entries.values());
  }

  /** Visit the operands of an And, and the columns that have equalities or lists together. */
  private void visitAll(List<Expression> operands) {
    List<Expression> together = new ArrayList<>();
    long keys = 1;
    for (Expression operand : operands) {
      if (visits >= MAX_VISITS) break;
      visit(operand);
      List<Object> values = ListedValues.in(operand);
      boolean isEquality = operand instanceof EqualTo || operand instanceof EqualNullSafe;
      Expression column =
          values != null ? operand.children().head() : isEquality ? beside(operand) : null;
      if (column == null) continue;
      together.add(column);
      keys = Math.min(MAX_KEYS, keys * (values == null ? 1 : Math.max(1, values.size())));
    }
    addTogether(together, " IN (?)", (int) keys);
  }

  private void visit(Expression e) {
    if (entries.size() >= MAX_ENTRIES || ++visits > MAX_VISITS) return;
    Tuples tuples = Tuples.of(e);
    List<Object> values = tuples == null ? ListedValues.in(e) : null;
    if (tuples != null) {
      addTogether(tuples.columns(), " IN (?)", tuples.rows().size());
    } else if (e instanceof And) {
      visitAll(Conditions.flatten(e));
    } else if (e instanceof Or) {
      Conditions.flatten(e).forEach(this::visit);
    } else if (e instanceof EqualTo || e instanceof EqualNullSafe) {
      add(beside(e), VALUES, " = ?", 1);
    } else if (e instanceof BinaryComparison) {
      add(beside(e), RANGE, " BETWEEN ? AND ?", 1);
    } else if (e instanceof StartsWith starts) {
      add(starts.left(), RANGE, " LIKE '?%'", 1);
    } else if (TextConditions.isOne(e)) {
      add(e.children().head(), TEXT, " LIKE '%?%'", 1);
    } else if (values != null) {
      add(e.children().head(), VALUES, " IN (?)", values.size());
    }
  }

  /** Return the operand beside a constant; null if neither is constant. */
  private static Expression beside(Expression comparison) {
    Expression left = comparison.children().head();
    Expression right = comparison.children().last();
    if (left instanceof Literal) return right;
    return right instanceof Literal ? left : null;
  }

  /** Add the columns among some expressions as one entry, if they are several. */
  private void addTogether(List<Expression> expressions, String how, int keys) {
    Map<String, String> identities = new TreeMap<>(); // the order of columns does not matter
    for (Expression e : expressions) {
      ColumnRef column = columns.describe(Casts.bare(e));
      if (column != null) identities.put(column.name(), column.identity());
    }
    if (identities.size() < 2 || identities.size() > MAX_COLUMNS) return;
    String name = "(" + String.join(", ", identities.keySet()) + ")";
    addEntry("", List.copyOf(identities.values()), name, name, false, name + how, VALUES, keys);
  }

  private void add(Expression e, String form, String how, int keys) {
    if (e == null) return;
    Expression bare = Casts.bare(e);
    if (Conditions.path(bare) != null) {
      addColumn(bare, null, form, how, keys);
      return;
    }
    Expression inner = form.equals(TEXT) ? null : findOrderedColumn(e);
    if (inner != null && Conditions.path(inner) != null) {
      addColumn(inner, Conditions.shape(e), RANGE, how, keys);
      return;
    }
    String text = bare instanceof Literal ? null : ExpressionText.of(bare, columns).text();
    Expression unresolved = text == null ? null : unresolve(bare);
    if (unresolved == null) return;
    String sql = sql(unresolved);
    addEntry(text, List.of(), Conditions.shape(bare), sql, true, sql + how, form, keys);
  }

  /** Return the column in a monotonic function, whose index is looked up by a range; or null. */
  private static Expression findOrderedColumn(Expression e) {
    Monotonic function = Monotonic.of(e);
    if (function != null) return function.column();
    return e instanceof Substring substring ? substring.str() : null;
  }

  /** Return an expression as SQL without outer parentheses. */
  private static String sql(Expression e) {
    String sql = e.sql();
    boolean isWrapped = e instanceof BinaryOperator && sql.startsWith("(");
    return isWrapped ? sql.substring(1, sql.length() - 1) : sql;
  }

  private void addColumn(Expression e, String shape, String form, String how, int keys) {
    ColumnRef column = columns.describe(e);
    if (column == null) return;
    String name = column.name();
    String condition = (shape == null ? name : shape) + how;
    addEntry(column.identity(), List.of(), name, name, false, condition, form, keys);
  }

  private void addEntry(
      String identity, List<String> parts, String name, String sql, boolean computed,
      String condition, String form, int keys) {
    Map<String, Object> entry = entries.get(condition);
    if (entry != null) {
      entry.merge("keys", keys, (all, more) -> Math.min(MAX_KEYS, (Integer) all + (Integer) more));
      return;
    }
    if (entries.size() >= MAX_ENTRIES) return;
    entries.put(
        condition,
        new HashMap<>(
            Map.of(
                "condition", condition, "identity", identity, "parts", parts, "name", name,
                "sql", sql, "computed", computed, "form", form, "keys", keys)));
  }

  /** Return an expression over the bare names of its columns; null if a constant may be data. */
  private static Expression unresolve(Expression e) {
    List<String> path = Conditions.path(e);
    if (path != null) return new UnresolvedAttribute(ScalaInterop.asScala(path));
    List<Expression> children = ScalaInterop.asJava(e.children());
    for (int i = 0; i < children.size(); i++) {
      Expression child = children.get(i);
      if (!(child instanceof Literal)) {
        child = unresolve(child);
      } else if (!STRUCTURE.contains(e.getClass().getSimpleName() + " " + i)) {
        child = null;
      }
      if (child == null) return null;
      children.set(i, child);
    }
    return e.withNewChildren(ScalaInterop.asScala(children));
  }
}
