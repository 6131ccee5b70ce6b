package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.Substring;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.MessageWriter;
import rewrite.jvm.bridge.Protocol;
import rewrite.jvm.bridge.Request;

/**
 * Translates the filters of a scan and the keys of joins into one condition, exactly: a filter
 * without an exact translation becomes unknown.
 *
 * <p>NOT stays where it is, because Python pushes it to the leaves before it weakens anything. So
 * this class must not weaken: a LIKE that is more than a prefix is not a prefix. A filter with only
 * a weak translation states what it implies where it is true, and where it is false.
 */
public record PredicateEncoder(IndexedColumns columns) {
  /** AND, OR and NOT nested more deeply are unknown: JSON parsers limit the depth. */
  private static final int MAX_DEPTH = 200;

  /** The limit of tuples that are looked up without a multi-column index, too. */
  public static final int FEW_TUPLES = 50;

  /** Write the request for the files of a table that filters and the keys of joins prune. */
  public static byte[] request(
      String table, IndexedColumns columns, List<Expression> filters,
      List<? extends KeyValues> keys, List<Tuples> tuples) {
    Condition condition = new PredicateEncoder(columns).encode(filters, keys, tuples);
    MessageWriter writer = new MessageWriter();
    return writer.message(
        new Request.FindPrunable(table, new ConditionWriter(writer).write(condition)));
  }

  private Condition encode(
      List<Expression> filters, List<? extends KeyValues> keys, List<Tuples> tuples) {
    List<Condition> operands = encodeAll(filters, 0);
    tuples.forEach(each -> operands.add(encodeTogether(each)));
    keys.stream().map(this::encodeKeys).filter(Objects::nonNull).forEach(operands::add);
    return new Condition.AllOf(operands);
  }

  /** Translate the keys of a join; null if they are unavailable, or no column has an index. */
  private Condition encodeKeys(KeyValues keys) {
    if (keys.values() == null && keys.ranges() == null) return null;
    Expression key = keys.column();
    ColumnRef column = columns.describe(key);
    boolean isCoalesced = column == null && Conditions.coalesceDefault(key) != null;
    if (isCoalesced) column = columns.describe(key.children().head());
    if (column == null) return null;
    List<Range> ranges = keys.ranges() == null ? List.of() : keys.ranges().coarsen().ranges();
    List<Object> values = keys.ranges() == null ? keys.values() : List.of();
    Condition condition =
        ranges.isEmpty()
            ? new Condition.ValueList(column, key.dataType(), values, false, keys.dimension())
            : Condition.within(column, key.dataType(), ranges, keys.dimension());
    return isCoalesced && mayBeNull(keys)
        ? new Condition.AnyOf(List.of(condition, new Condition.NullTest(column)))
        : condition;
  }

  /** Whether null matches keys on a coalesce: null matches coalesce(a, 0) if 0 is one of them. It
      is assumed for ranges, and for values with several forms, as -0.0. */
  private static boolean mayBeNull(KeyValues keys) {
    Object value = Conditions.coalesceDefault(keys.column()).value();
    boolean isExact =
        value instanceof Long || value instanceof Integer || value instanceof Short
            || value instanceof Byte || value instanceof UTF8String;
    return !isExact || keys.values() == null || keys.values().contains(value);
  }

  /** Translate tuples for the multi-column indexes. */
  private Condition encodeTogether(Tuples tuples) {
    List<ColumnRef> found = new ArrayList<>();
    List<DataType> types = new ArrayList<>();
    List<List<Object>> values = new ArrayList<>();
    for (int i = 0; i < tuples.columns().size(); i++) {
      Expression e = tuples.columns().get(i);
      ColumnRef column = MessageWriter.takes(e.dataType()) ? columns.describe(e) : null;
      if (column == null) continue;
      found.add(column);
      types.add(e.dataType());
      values.add(tuples.values(i));
    }
    return new Condition.TupleList(found, types, values, tuples.dimension());
  }

  /** Translate tuples of the query: column by column, and one by one if they are few. */
  private Condition encodeTuples(Tuples tuples) {
    List<Expression> expressions = tuples.columns();
    Condition holds;
    if (tuples.rows().size() <= FEW_TUPLES) {
      holds =
          new Condition.AnyOf(tuples.rows().stream().map(row -> equal(expressions, row)).toList());
    } else {
      List<Condition> operands = new ArrayList<>(List.of(encodeTogether(tuples)));
      IntStream.range(0, expressions.size())
          .mapToObj(i -> in(expressions.get(i), tuples.values(i)))
          .filter(Objects::nonNull)
          .forEach(operands::add);
      holds = new Condition.AllOf(operands);
    }
    return new Condition.Weak(holds, new Condition.Unknown("other tuples"));
  }

  private Condition equal(List<Expression> expressions, InternalRow row) {
    List<Condition> operands = new ArrayList<>();
    for (int i = 0; i < expressions.size(); i++) {
      Expression e = expressions.get(i);
      Condition operand = compare("=", e, new Literal(row.get(i, e.dataType()), e.dataType()));
      if (operand != null) operands.add(operand);
    }
    return new Condition.AllOf(operands);
  }

  private List<Condition> encodeAll(List<Expression> expressions, int depth) {
    List<Condition> out = new ArrayList<>(); // no stream: this recurses deeply
    for (Expression e : expressions) {
      out.add(encode(e, depth));
    }
    return out;
  }

  private Condition encode(Expression e, int depth) {
    boolean isJunction = e instanceof And || e instanceof Or;
    if (depth == MAX_DEPTH && (isJunction || e instanceof Not)) {
      return new Condition.Unknown("a condition nested too deeply");
    }
    if (isJunction) {
      List<Condition> operands = encodeAll(Conditions.flatten(e), depth + 1);
      return e instanceof And ? new Condition.AllOf(operands) : new Condition.AnyOf(operands);
    }
    if (e instanceof Not not) return new Condition.Negation(encode(not.child(), depth + 1));
    Expression nulls = e instanceof IsNull test ? spreadNullTest(test.child()) : null;
    if (nulls != null) return encode(nulls, depth);
    Condition leaf = encodeLeaf(e);
    return leaf == null ? new Condition.Unknown(Conditions.shape(e)) : leaf;
  }

  /** Return `(p AND q) IS NULL` in terms of p and q: one of them is null, and none is false; for OR,
      none is true. Null if it cannot be expressed so. */
  private static Expression spreadNullTest(Expression e) {
    if (!(e instanceof And || e instanceof Or)) return null;
    List<Expression> nulls = new ArrayList<>();
    List<Expression> conditions = new ArrayList<>();
    for (Expression operand : Conditions.flatten(e)) {
      Expression column = comparedColumn(operand);
      if (column == null) return null;
      Expression isNull = new IsNull(column);
      nulls.add(isNull);
      conditions.add(new Or(e instanceof And ? operand : new Not(operand), isNull));
    }
    conditions.add(Conditions.disjunction(nulls));
    return Conditions.conjunction(conditions);
  }

  /** Return what is compared with a value: the comparison is null where this is. Null for any other
      condition. */
  private static Expression comparedColumn(Expression e) {
    if (!(e instanceof BinaryComparison comparison) || e instanceof EqualNullSafe) return null;
    boolean isFirst = comparison.left() instanceof Literal;
    Expression value = isFirst ? comparison.left() : comparison.right();
    boolean isValue = value instanceof Literal literal && literal.value() != null;
    return !isValue ? null : isFirst ? comparison.right() : comparison.left();
  }

  private Condition encodeLeaf(Expression e) {
    Tuples tuples = Tuples.of(e);
    if (tuples != null) return encodeTuples(tuples);
    if (e instanceof EqualNullSafe equal) return equalNullSafe(equal);
    if (e instanceof BinaryComparison comparison) return compare(comparison);
    if (e instanceof IsNull test) return isNull(test.child());
    if (e instanceof IsNotNull test) return negate(isNull(test.child()));
    if (e instanceof In || e instanceof InSet) {
      List<Object> values = ListedValues.in(e);
      return values == null ? null : in(e.children().head(), values);
    }
    if (TextConditions.isOne(e)) {
      TextConditions text = searched(e.children().head());
      return text == null ? null : text.translate(e);
    }
    ArrayCondition array = ArrayCondition.of(e);
    if (array != null) return encodeElements(array, e);
    // Spark writes `ok = true` as `ok`.
    if (e.dataType() instanceof BooleanType) return compare("=", e, Literal$.MODULE$.TrueLiteral());
    return null;
  }

  private Condition encodeElements(ArrayCondition array, Expression e) {
    ColumnRef column = columns.describeArray(array.column());
    if (column == null || !MessageWriter.takes(array.type())) return null;
    return new Condition.Weak(
        new Condition.Elements(column, array.type(), array.values()),
        new Condition.Unknown("NOT " + Conditions.shape(e)));
  }

  /** Return a column to search, or the one in `lower(c)` or `upper(c)`; null for anything else. */
  private TextConditions searched(Expression e) {
    ColumnRef column = columns.describe(e);
    if (column != null) return new TextConditions(column, false);
    Expression text = TextConditions.uncased(e);
    column = text == null ? null : columns.describe(text);
    return column == null ? null : new TextConditions(column, true);
  }

  private static Condition negate(Condition condition) {
    return condition == null ? null : new Condition.Negation(condition);
  }

  private Condition compare(BinaryComparison e) {
    if (e.left() instanceof Literal literal) return compare(mirror(e.symbol()), e.right(), literal);
    return e.right() instanceof Literal literal ? compare(e.symbol(), e.left(), literal) : null;
  }

  private Condition compare(String op, Expression e, Literal literal) {
    if (literal.value() == null || !MessageWriter.takes(literal.dataType())) return null;
    ColumnRef column = columns.describe(e);
    if (column != null) return new Condition.Comparison(column, op, literal);
    if (e instanceof Substring start) {
      ColumnRef text = columns.describe(start.str());
      return text == null ? null : TextConditions.compareStart(op, start, text, literal);
    }
    if (TextConditions.uncased(e) != null) {
      TextConditions text = op.equals("=") ? searched(e) : null;
      return text == null ? null : text.match(Protocol.PREFIX, literal, e);
    }
    if (!literal.dataType().equals(e.dataType())) return null;
    Monotonic function = Monotonic.of(e);
    if (function == null) return null;
    List<Range> holds = function.ranges(op, literal.value());
    return weak(function, holds, function.ranges(negate(op), literal.value()));
  }

  /** Return what the result of a function implies about the column in it: it is within some ranges
      where the condition is true, and within others where it is false. */
  private Condition weak(Monotonic function, List<Range> holds, List<Range> fails) {
    if (holds == null || fails == null) return null;
    ColumnRef column = columns.describe(function.column());
    if (column == null) return null;
    DataType type = function.column().dataType();
    return new Condition.Weak(
        Condition.within(column, type, holds, ""), Condition.within(column, type, fails, ""));
  }

  /** Return the operator for swapped operands. */
  private static String mirror(String op) {
    return switch (op) {
      case "<" -> ">";
      case "<=" -> ">=";
      case ">" -> "<";
      case ">=" -> "<=";
      default -> op;
    };
  }

  private static String negate(String op) {
    return switch (op) {
      case "<" -> ">=";
      case "<=" -> ">";
      case ">" -> "<=";
      case ">=" -> "<";
      default -> "<>";
    };
  }

  /** Translate `a <=> 5` as `a = 5 AND a IS NOT NULL`, which is never null, so that its negation
      is exact, too. */
  private Condition equalNullSafe(EqualNullSafe e) {
    Expression column = e.left() instanceof Literal ? e.right() : e.left();
    Expression other = e.left() instanceof Literal ? e.left() : e.right();
    if (!(other instanceof Literal literal)) return null;
    Condition isNull = isNull(column);
    if (isNull == null || literal.value() == null) return isNull;
    Condition equal = compare("=", column, literal);
    return equal == null ? null : new Condition.AllOf(List.of(equal, negate(isNull)));
  }

  private Condition isNull(Expression e) {
    ColumnRef column = columns.describe(e);
    return column == null ? null : new Condition.NullTest(column);
  }

  private Condition in(Expression e, List<Object> values) {
    if (!MessageWriter.takes(e.dataType())) return null;
    List<Object> present = values.stream().filter(Objects::nonNull).toList();
    boolean hasNull = present.size() < values.size();
    ColumnRef column = columns.describe(e);
    if (column != null) {
      return new Condition.ValueList(column, e.dataType(), present, hasNull, null);
    }
    boolean isText = e instanceof Substring || TextConditions.uncased(e) != null;
    Condition one = isText ? equalsAny(e, present) : resultIn(e, present);
    // NOT IN (2, NULL) is never true.
    return one == null || !hasNull ? one : new Condition.Weak(one, Condition.NOTHING);
  }

  private Condition resultIn(Expression e, List<Object> results) {
    Monotonic function = Monotonic.of(e);
    if (function == null) return null;
    List<Range> holds = function.ranges(KeyRanges.of(e.dataType(), results, results));
    return weak(function, holds, List.of(Range.ALL));
  }

  private Condition equalsAny(Expression e, List<Object> texts) {
    if (texts.size() > KeyRanges.MAX_RANGES) return null;
    List<Condition> operands = new ArrayList<>();
    for (Object text : texts) {
      Condition operand = compare("=", e, new Literal(text, e.dataType()));
      if (operand == null) return null;
      operands.add(operand);
    }
    return new Condition.AnyOf(operands);
  }
}
