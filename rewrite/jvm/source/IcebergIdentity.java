package rewrite.jvm.source;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import org.apache.iceberg.Table;
import org.apache.iceberg.mapping.MappedField;
import org.apache.iceberg.mapping.MappedFields;
import org.apache.iceberg.mapping.NameMappingParser;
import org.apache.spark.sql.catalyst.util.QuotingUtils;

/** The identity of a column as `skipping/tables/iceberg/schema.py` has it, which says why. */
public final class IcebergIdentity {
  private IcebergIdentity() {}

  /** That of the column with a field id. */
  public static String of(Table table, int id) {
    String mapping = table.properties().get("schema.name-mapping.default");
    String names = mapping == null
        ? null : names(NameMappingParser.fromJson(mapping).asMappedFields(), id);
    return names == null ? "#" + id : "#" + id + " " + names;
  }

  /** The names of each part of the path to an id; null if it has none. */
  private static String names(MappedFields fields, int id) {
    if (fields == null) return null;
    for (Iterator each = fields.fields().iterator(); each.hasNext(); ) {
      MappedField field = (MappedField) each.next();
      if (field.id() != null && field.id().intValue() == id) return spelled(field);
      String inner = names(field.nestedMapping(), id);
      if (inner != null) return spelled(field) + "." + inner;
    }
    return null;
  }

  private static String spelled(MappedField field) {
    List names = new ArrayList(field.names());
    Collections.sort(names);
    StringBuilder text = new StringBuilder();
    for (Iterator each = names.iterator(); each.hasNext(); ) {
      if (text.length() > 0) text.append(',');
      text.append(QuotingUtils.quoteIdentifier((String) each.next()));
    }
    return text.toString();
  }
}
