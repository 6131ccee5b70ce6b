package rewrite.jvm.source;

import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;

/** A scan of a connector, which lists and reads files itself. See TableFormat. */
public interface ConnectorSource extends ScanSource {
  /** The connector's own. */
  Scan scan();

  /** Reads the same files, and may be changed; null where this release does not allow it. */
  ConnectorSource copy();

  /** The locations of the files that its own planning left. */
  List locations() throws Exception;

  /** The files that its own planning left, as Sizes says. */
  List sizes() throws Exception;

  /** Its partitions less some files; no file of a partition is left out of a copy only. `keys` may
      narrow what is read of the rest. Where it is `grouped`, every group stays, if empty. */
  InputPartition[] without(Set locations, List keys, boolean grouped) throws Exception;

  /** What `without` narrows by, in words that tell one from another. */
  String narrowing(List keys);
}
