package rewrite.jvm.predicate;

import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import rewrite.jvm.bridge.ScalaInterop;

/**
 * Keys of a join that are known before anything runs, as a condition of a plan.
 *
 * <pre>
 *   true OR (isnotnull('the metadata of d #...') AND k IN (3, 5))
 *   true OR (isnotnull('the metadata of d #...') AND (k >= 3 AND k <= 5 OR k >= 8 AND k <= 9))
 * </pre>
 *
 * <p>Evaluated literally, it drops no row. FilePruningRule removes it and prunes files by the keys.
 * The keys are part of the plan, so that scans with different keys are different.
 */
public final class StaticKeys {
  /** Distinguishes these conditions from a query's own ones of the same form. */
  private static final String MARK = " #" + UUID.randomUUID().toString().substring(0, 13);

  private StaticKeys() {}

  /** Return the condition for some keys. */
  public static Expression toCondition(KeyValues keys) {
    Expression column = keys.column();
    DataType type = column.dataType();
    Expression some;
    if (keys.ranges() == null) {
      List<Expression> values = new ArrayList<>();
      keys.values().forEach(value -> values.add(new Literal(value, type)));
      if (values.isEmpty()) values.add(new Literal(null, type)); // nothing equals null
      some = new In(column, ScalaInterop.asScala(values));
    } else {
      List<Expression> ranges = new ArrayList<>();
      for (Range range : keys.ranges().ranges()) {
        ranges.add(
            new And(
                new GreaterThanOrEqual(column, new Literal(range.min(), type)),
                new LessThanOrEqual(column, new Literal(range.max(), type))));
      }
      some = Conditions.disjunction(ranges);
    }
    Expression name = new IsNotNull(Literal$.MODULE$.apply(keys.dimension() + MARK));
    return new Or(Literal$.MODULE$.TrueLiteral(), new And(name, some));
  }

  /** Return the keys of a condition; null for any other condition. */
  static KeyValues of(Expression condition) {
    And named = named(condition);
    if (named == null) return null;
    String name = ((Literal) ((IsNotNull) named.left()).child()).value().toString();
    String dimension = name.substring(0, name.length() - MARK.length());
    List<Object> values = ListedValues.in(named.right());
    if (values != null) {
      values.removeIf(Objects::isNull);
      return new KeyValues.Of(named.right().children().head(), values, null, dimension);
    }
    List<Object> mins = new ArrayList<>();
    List<Object> maxs = new ArrayList<>();
    Expression column = null;
    for (Expression each :
        named.right() instanceof Or ? Conditions.flatten(named.right()) : List.of(named.right())) {
      if (!(each instanceof And range && range.left() instanceof GreaterThanOrEqual from
          && range.right() instanceof LessThanOrEqual to && from.right() instanceof Literal min
          && to.right() instanceof Literal max)) {
        return null;
      }
      column = from.left();
      mins.add(min.value());
      maxs.add(max.value());
    }
    KeyRanges ranges = KeyRanges.of(column.dataType(), mins, maxs);
    return new KeyValues.Of(column, null, ranges, dimension);
  }

  /** Whether a condition has keys. */
  public static boolean isOne(Expression condition) {
    return named(condition) != null;
  }

  private static And named(Expression condition) {
    return condition instanceof Or or && or.left().equals(Literal$.MODULE$.TrueLiteral())
            && or.right() instanceof And and && and.left() instanceof IsNotNull name
            && name.child() instanceof Literal text && text.value() instanceof UTF8String value
            && value.toString().endsWith(MARK)
        ? and
        : null;
  }

  /** Remove the conditions with keys from a list, and return their keys. */
  public static List<KeyValues> take(List<Expression> conditions) {
    List<KeyValues> out = new ArrayList<>();
    for (Expression condition : List.copyOf(conditions)) {
      KeyValues keys = of(condition);
      if (keys != null) out.add(keys);
    }
    conditions.removeIf(StaticKeys::isOne);
    return out;
  }
}
