package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.KnownNullable;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.types.StructType;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.Conditions;

/** Several columns as one expression, whose values are tuples. */
public final class TupleRow {
  private static final String FIELD = "key";

  private TupleRow() {}

  /** Return a row of several columns, or of the keys that they are compared with. Both sides of a
      comparison must have one type, nulls included. */
  public static Expression row(List<Expression> columns) {
    List<Expression> fields = new ArrayList<>();
    for (Expression column : columns) {
      fields.add(Literal$.MODULE$.apply(FIELD + fields.size() / 2));
      fields.add(new KnownNullable(column));
    }
    return new CreateNamedStruct(ScalaInterop.asScala(fields));
  }

  /** Whether an expression is such a row. */
  public static boolean isRow(Expression e) {
    return e.dataType() instanceof StructType type && type.fields()[0].name().startsWith(FIELD);
  }

  /** Describe a row: `(a, b)`. */
  static String shape(Expression row) {
    return columns(row).stream()
        .map(Conditions::shape)
        .collect(Collectors.joining(", ", "(", ")"));
  }

  /** Return the columns of a row. */
  static List<Expression> columns(Expression row) {
    List<Expression> fields = ScalaInterop.asJava(row.children());
    return IntStream.range(0, fields.size() / 2)
        .mapToObj(i -> fields.get(2 * i + 1).children().head())
        .toList();
  }
}
