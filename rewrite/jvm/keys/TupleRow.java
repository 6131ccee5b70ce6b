package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
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
  private static final String OPERAND = "operand";

  private TupleRow() {}

  /** Return a row of several columns, or of the keys that they are compared with. Both sides of a
      comparison must have one type, nulls included. */
  public static Expression row(List<Expression> columns) {
    return row(FIELD, columns);
  }

  /** Return a row of columns that OR joins: one must equal its key. */
  public static Expression operands(List<Expression> columns) {
    return row(OPERAND, columns);
  }

  private static Expression row(String name, List<Expression> columns) {
    Map<String, Expression> fields = new LinkedHashMap<>();
    columns.forEach(column -> fields.put(name + fields.size(), column));
    return row(fields);
  }

  /** Return a row of fields by their names. */
  public static Expression row(Map<String, Expression> fields) {
    List<Expression> out = new ArrayList<>();
    fields.forEach((name, field) -> {
      out.add(Literal$.MODULE$.apply(name));
      out.add(new KnownNullable(field));
    });
    return new CreateNamedStruct(ScalaInterop.asScala(out));
  }

  /** Whether an expression is a row of columns that must all equal their keys. */
  public static boolean isRow(Expression e) {
    return startsWith(e, FIELD);
  }

  /** Whether an expression is a row of `operands`. */
  public static boolean hasOperands(Expression e) {
    return startsWith(e, OPERAND);
  }

  private static boolean startsWith(Expression e, String name) {
    // A key of the user's may be a struct with such a name, too.
    return e instanceof CreateNamedStruct row && e.dataType() instanceof StructType type
        && type.fields()[0].name().startsWith(name)
        && row.valExprs().forall(value -> value instanceof KnownNullable);
  }

  /** Describe a row: `(a, b)`, or `a OR b`. */
  public static String shape(Expression row) {
    boolean isOr = hasOperands(row);
    return columns(row).stream()
        .map(Conditions::shape)
        .collect(
            Collectors.joining(isOr ? " OR " : ", ", isOr ? "" : "(", isOr ? "" : ")"));
  }

  /** Return the columns of a row. */
  public static List<Expression> columns(Expression row) {
    List<Expression> fields = ScalaInterop.asJava(row.children());
    return IntStream.range(0, fields.size() / 2)
        .mapToObj(i -> fields.get(2 * i + 1).children().head())
        .toList();
  }
}
