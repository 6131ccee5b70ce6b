package rewrite.jvm.keys;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.CreateNamedStruct;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.KnownNullable;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.Conditions;

/** Several columns as one expression, whose values are tuples. */
public final class TupleRow {
  private static final String FIELD = "key";

  private TupleRow() {}

  /** A row of several columns, or of the keys that they are compared with. Both sides of a
      comparison have to be of one type, nulls included. */
  public static Expression row(List columns) {
    List fields = new ArrayList();
    for (int i = 0; i < columns.size(); i++) {
      fields.add(Literal$.MODULE$.apply(FIELD + i));
      fields.add(new KnownNullable((Expression) columns.get(i)));
    }
    return new CreateNamedStruct(ScalaInterop.asScala(fields));
  }

  /** Whether an expression is such a row. */
  public static boolean areOf(Expression row) {
    DataType type = row.dataType();
    return type instanceof StructType
        && ((StructType) type).fields()[0].name().startsWith(FIELD);
  }

  /** A row in words, `(a, b)`. */
  static String shape(Expression row) {
    List columns = columns(row);
    StringBuilder out = new StringBuilder("(");
    for (int i = 0; i < columns.size(); i++) {
      out.append(i == 0 ? "" : ", ").append(Conditions.shape((Expression) columns.get(i)));
    }
    return out.append(")").toString();
  }

  /** What a row is of. */
  static List columns(Expression row) {
    List fields = ScalaInterop.asJava(row.children());
    List out = new ArrayList();
    for (int i = 1; i < fields.size(); i += 2) {
      out.add(((Expression) fields.get(i)).children().apply(0));
    }
    return out;
  }
}
