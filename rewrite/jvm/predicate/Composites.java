package rewrite.jvm.predicate;

import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Expression;

/** The composites in a table's index: several columns that are indexed as one. */
public final class Composites {
  private final List composites;
  private final ColumnResolver identities;

  /** Of each the identities of its columns. */
  public Composites(List composites, ColumnResolver identities) {
    this.composites = composites;
    this.identities = identities;
  }

  /** Whether one of them has no other columns than these. */
  public boolean areAskedBy(List columns) {
    Set known = new HashSet();
    for (int i = 0; i < columns.size() && !composites.isEmpty(); i++) {
      List path = Conditions.path(Casts.bare((Expression) columns.get(i)));
      if (path != null) known.add(identities.identity(path));
    }
    for (int i = 0; i < composites.size(); i++) {
      if (known.containsAll((Collection) composites.get(i))) return true;
    }
    return false;
  }

  /** Whether a column is in one of up to so many columns. */
  public boolean have(List path, int columns) {
    for (int i = 0; i < composites.size(); i++) {
      Collection composite = (Collection) composites.get(i);
      if (composite.size() <= columns && composite.contains(identities.identity(path))) return true;
    }
    return false;
  }
}
