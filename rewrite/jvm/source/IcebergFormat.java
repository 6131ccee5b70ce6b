package rewrite.jvm.source;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;

/** Apache Iceberg. Its classes are loaded only behind `isFormat`. */
public final class IcebergFormat implements TableFormat {
  private static final String SCAN = "org.apache.iceberg.spark.source.SparkBatchQueryScan";
  private static final String STREAM = "org.apache.iceberg.spark.source.SparkMicroBatchStream";
  private static final String PARTITION = "org.apache.iceberg.spark.source.SparkInputPartition";

  @Override public boolean isFormat(Scan scan) {
    return scan.getClass().getName().equals(SCAN);
  }

  @Override public boolean isFormat(InputPartition partition) {
    return partition.getClass().getName().equals(PARTITION);
  }

  @Override public boolean isFormat(MicroBatchStream stream) {
    return stream.getClass().getName().equals(STREAM);
  }

  @Override public ConnectorSource open(Scan scan, List<InputPartition> batch) {
    return isFormat(scan) ? IcebergSource.ofBatch(scan, batch) : null;
  }

  @Override public ConnectorSource open(Scan scan, scala.collection.Iterable<?> output) {
    return IcebergSource.of(scan, output);
  }

  @Override public boolean isSnapshot(Scan scan) {
    return true;
  }

  @Override public boolean hasConditions(Scan scan) {
    return IcebergSource.hasConditions(scan);
  }

  @Override public void addFiles(InputPartition partition, Map<String, Long> files) throws Exception {
    IcebergTasks.addFiles(partition, files);
  }
}
