package rewrite.jvm.keys;

import java.util.Collection;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import rewrite.jvm.predicate.KeyRanges;

/** The keys of a join once they are collected. */
sealed interface CollectedKeys {
  int size();

  /** Single values. A null is not among them: it equals nothing. */
  record Values(List<Object> values) implements CollectedKeys {
    @Override public int size() {
      return values.size();
    }
  }

  /** Ranges, of a join by `<` or BETWEEN, or of a function such as `date(ts)`. */
  record Ranges(KeyRanges ranges) implements CollectedKeys {
    @Override public int size() {
      return ranges.size();
    }
  }

  /** The keys of several columns that OR joins: one column must have one of its keys. */
  record Operands(List<KeyForms> forms, int size) implements CollectedKeys {}

  /** Rows of the keys of several columns. */
  record Tuples(Collection<InternalRow> rows) implements CollectedKeys {
    @Override public int size() {
      return rows.size();
    }
  }
}
