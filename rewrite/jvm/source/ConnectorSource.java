package rewrite.jvm.source;

import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;
import rewrite.jvm.predicate.KeyValues;

/** A scan of a connector, which lists and reads files itself. See TableFormat. */
public interface ConnectorSource extends ScanSource {
  /** The connector's own. */
  Scan scan();

  /** The table's name, for explain of a stream. */
  default String name() {
    return scan().description();
  }

  /** Returns a scan that reads the same files, and may be changed; null where this release does not
      allow it. */
  ConnectorSource copy();

  /** Returns the steps of its own planning. */
  List<SizeStep> sizes() throws Exception;

  /** Returns its partitions without some files; a copy only loses files, not those of a partition.
      `keys` may narrow what is read of the rest. If `grouped`, every group stays, even if empty. */
  InputPartition[] without(Set<String> locations, List<? extends KeyValues> keys, boolean grouped)
      throws Exception;

  /** Identifies what `without` narrows by. */
  String narrowing(List<? extends KeyValues> keys);
}
