package rewrite.jvm.predicate;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.types.DataType;

/** How a table format identifies a column at the version that a scan reads. */
public interface ColumnResolver {
  /** Return the identity that an index has for the column at a path of names; null if unknown. */
  String identity(List<String> path);

  /** Return the column at a path of names; null if unknown. */
  default ColumnRef describe(List<String> path, DataType type) {
    String identity = identity(path);
    return identity == null ? null : ColumnRef.of(identity, path, type);
  }

  /** Return the column that an expression is; null if unknown. */
  default ColumnRef describe(Expression e) {
    List<String> path = Conditions.path(e);
    return path == null ? null : describe(path, e.dataType());
  }
}
