package rewrite.jvm.predicate;

import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;

/** The multi-column indexes of a table: for each, the identities of its columns. */
public record Composites(List<? extends Collection<String>> composites, ColumnResolver resolver) {
  /** Whether some columns include all columns of one of the indexes. */
  public boolean applyTo(List<? extends Expression> columns) {
    if (composites.isEmpty()) return false;
    Set<String> identities = new HashSet<>();
    for (Expression column : columns) {
      List<String> path = Conditions.path(Casts.bare(column));
      if (path != null) identities.add(resolver.identity(path));
    }
    return composites.stream().anyMatch(identities::containsAll);
  }

  /** Whether a column is in an index on not more than `columns` columns. */
  public boolean have(List<String> path, int columns) {
    if (composites.isEmpty()) return false;
    String identity = resolver.identity(path);
    return composites.stream().anyMatch(all -> all.size() <= columns && all.contains(identity));
  }
}
