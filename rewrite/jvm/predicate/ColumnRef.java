package rewrite.jvm.predicate;

import java.util.List;
import org.apache.spark.sql.types.DataType;
import rewrite.jvm.bridge.MessageWriter;

/** A column, or an indexed expression: its identity in an index, its name for people, its type. */
public record ColumnRef(String identity, String name, String type) {
  /** Refer to the column at a path of names. */
  public static ColumnRef of(String identity, List<String> path, DataType type) {
    return new ColumnRef(identity, MessageWriter.joinPath(path), type.catalogString());
  }
}
