package rewrite.jvm.predicate;

import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.expressions.ArrayContains;
import org.apache.spark.sql.catalyst.expressions.ArrayExists;
import org.apache.spark.sql.catalyst.expressions.ArraysOverlap;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedLambdaVariable;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;

/** A condition that is true only if an array contains one of some values; null is not one. */
record ArrayCondition(Expression column, DataType type, List<Object> values) {
  /** Return the condition that an expression is; null if it is another one. */
  static ArrayCondition of(Expression e) {
    if (e instanceof ArrayContains contains) return of(contains.left(), contains.right());
    if (e instanceof ArrayExists exists) return exists(exists);
    if (!(e instanceof ArraysOverlap overlap)) return null;
    boolean isFirst = overlap.left() instanceof Literal;
    Expression column = isFirst ? overlap.right() : overlap.left();
    Expression values = isFirst ? overlap.left() : overlap.right();
    if (!(values instanceof Literal literal) || literal.value() == null) return null;
    if (!(values.dataType() instanceof ArrayType array)) return null;
    DataType type = array.elementType();
    return of(column, type, Stream.of(((ArrayData) literal.value()).toObjectArray(type)));
  }

  /** Translate `exists(a, x -> x = 1)` and `exists(a, x -> x IN (1, 2))`. */
  private static ArrayCondition exists(ArrayExists e) {
    if (!(e.function() instanceof LambdaFunction lambda)) return null;
    Expression body = lambda.function();
    List<Object> values = ListedValues.in(body);
    if (!(body instanceof EqualTo) && values == null) return null;
    Expression element = body.children().head();
    if (!(element instanceof NamedLambdaVariable)) return null;
    return values == null
        ? of(e.argument(), body.children().last())
        : of(e.argument(), element.dataType(), values.stream());
  }

  private static ArrayCondition of(Expression column, Expression value) {
    return value instanceof Literal literal
        ? of(column, literal.dataType(), Stream.ofNullable(literal.value()))
        : null;
  }

  private static ArrayCondition of(Expression column, DataType type, Stream<Object> values) {
    return new ArrayCondition(column, type, values.filter(Objects::nonNull).toList());
  }
}
