package rewrite.jvm.predicate;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.types.DataType;

/** How a table format identifies a column at the version that a scan reads. */
public interface ColumnResolver {
  /** The identity of the column at a path of names, as an index names it; null if unknown. */
  String identity(List<String> path);

  /** The identity, name and type of the column at a path of names; null if unknown. */
  Map<String, Object> describe(List<String> path, DataType type);
}
