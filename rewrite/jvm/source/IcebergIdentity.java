package rewrite.jvm.source;

import java.util.stream.Collectors;
import org.apache.iceberg.Table;
import org.apache.iceberg.mapping.MappedField;
import org.apache.iceberg.mapping.MappedFields;
import org.apache.iceberg.mapping.NameMappingParser;
import org.apache.spark.sql.catalyst.util.QuotingUtils;

/** The identity of a column as `skipping/tables/iceberg/schema.py` has it, which says why. */
public final class IcebergIdentity {
  private IcebergIdentity() {}

  /** Returns that of the column with a field id. */
  public static String of(Table table, int id) {
    String mapping = table.properties().get("schema.name-mapping.default");
    String names = mapping == null
        ? null : findNames(NameMappingParser.fromJson(mapping).asMappedFields(), id);
    return names == null ? "#" + id : "#" + id + " " + names;
  }

  /** Returns the names of each part of the path to an id; null if it has none. */
  private static String findNames(MappedFields fields, int id) {
    if (fields == null) return null;
    for (MappedField field : fields.fields()) {
      if (field.id() != null && field.id() == id) return quote(field);
      String inner = findNames(field.nestedMapping(), id);
      if (inner != null) return quote(field) + "." + inner;
    }
    return null;
  }

  private static String quote(MappedField field) {
    return field.names().stream()
        .sorted()
        .map(QuotingUtils::quoteIdentifier)
        .collect(Collectors.joining(","));
  }
}
