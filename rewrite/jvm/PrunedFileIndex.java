package rewrite.jvm;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;

/**
 * A table's file index less the files that are disproved.
 *
 * <p>The inner index lists the files of the version that the query reads; this one only leaves out.
 * It stands behind the scan's transient relation and never reaches an executor. Equality includes
 * what is left out: a pruned scan is another scan, or reused exchanges would return wrong rows.
 */
public final class PrunedFileIndex implements FileIndex {
  private final FileIndex inner;
  private final Answer answer;

  public PrunedFileIndex(FileIndex inner, Answer answer) {
    this.inner = inner;
    this.answer = answer;
  }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    Seq listed = inner.listFiles(partitionFilters, dataFilters);
    try {
      return without(listed);
    } catch (Throwable failure) {
      return listed;
    }
  }

  private Seq without(Seq listed) {
    List directories = Scala.list(listed);
    List out = new ArrayList();
    for (int i = 0; i < directories.size(); i++) {
      PartitionDirectory directory = (PartitionDirectory) directories.get(i);
      List files = Scala.list(directory.files());
      List kept = new ArrayList();
      for (int j = 0; j < files.size(); j++) {
        FileStatusWithMetadata file = (FileStatusWithMetadata) files.get(j);
        if (!answer.disproves(ordinal(file))) kept.add(file);
      }
      if (!kept.isEmpty()) out.add(new PartitionDirectory(directory.values(), Scala.seq(kept)));
    }
    return Scala.seq(out);
  }

  private int ordinal(FileStatusWithMetadata file) {
    return answer.ordinal(file.getPath().toString(), file.getLen());
  }

  /** Counts what happens to each file of a scan with these filters, for explain. */
  public Map count(Seq partitionFilters, Seq dataFilters) {
    List directories = Scala.list(inner.listFiles(partitionFilters, dataFilters));
    int total = 0;
    int unknown = 0;
    int disproved = 0;
    int[] legs = new int[answer.legs()];
    for (int i = 0; i < directories.size(); i++) {
      List files = Scala.list(((PartitionDirectory) directories.get(i)).files());
      total += files.size();
      for (int j = 0; j < files.size(); j++) {
        int ordinal = ordinal((FileStatusWithMetadata) files.get(j));
        if (ordinal < 0) unknown++;
        if (answer.disproves(ordinal)) disproved++;
        for (int k = 0; k < legs.length; k++) {
          if (answer.disproves(k, ordinal)) legs[k]++;
        }
      }
    }
    Map out = new HashMap(answer.header());
    out.put("total", Integer.valueOf(total));
    out.put("unknown", Integer.valueOf(unknown));
    out.put("disproved", Integer.valueOf(disproved));
    out.put("counts", legs);
    return out;
  }

  public Seq rootPaths() {
    return inner.rootPaths();
  }

  public String[] inputFiles() {
    return inner.inputFiles();
  }

  public void refresh() {
    inner.refresh();
  }

  public long sizeInBytes() {
    return inner.sizeInBytes();
  }

  public StructType partitionSchema() {
    return inner.partitionSchema();
  }

  public scala.Option metadataOpsTimeNs() {
    return inner.metadataOpsTimeNs();
  }

  /** Shown in Spark's EXPLAIN as the scan's location. */
  public String toString() {
    return "Skipping(" + inner + ")";
  }

  public boolean equals(Object other) {
    return other instanceof PrunedFileIndex
        && inner.equals(((PrunedFileIndex) other).inner)
        && answer.equals(((PrunedFileIndex) other).answer);
  }

  public int hashCode() {
    return 31 * inner.hashCode() + answer.hashCode();
  }
}
