package rewrite.jvm;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningExpression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.InSubqueryExec;
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
  private final Skipping skipping;
  private final IndexedScan read;
  private final List filters;
  private final List keys;
  private Answer answer;
  private Map counts;

  /** `filters` are the scan's own, `keys` what joins demand of it. */
  public PrunedFileIndex(
      FileIndex inner, Skipping skipping, IndexedScan read, List filters, List keys) {
    this.inner = inner;
    this.skipping = skipping;
    this.read = read;
    this.filters = filters;
    this.keys = keys;
  }

  /** Asks the index, with the keys that are there; otherwise this is done when files are listed. */
  public void ask() {
    boolean something = !filters.isEmpty();
    for (int i = 0; i < keys.size(); i++) {
      something |= ((KeySet) keys.get(i)).values() != null;
    }
    answer = something
        ? skipping.ask(read, filters, keys)
        : Answer.failed("there are no keys, and no condition of the query reached this scan");
  }

  public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
    Seq listed = inner.listFiles(partitionFilters, own(dataFilters));
    try {
      if (answer == null) collectAndAsk();
      return without(listed);
    } catch (Unanswered strict) {
      throw strict;
    } catch (Throwable failure) {
      return listed;
    }
  }

  /** The scan's own filters of those given: Delta would plan anew for the ranges of keys. */
  private Seq own(Seq dataFilters) {
    List out = new ArrayList();
    List given = Scala.list(dataFilters);
    for (int i = 0; i < given.size(); i++) {
      if (filters.contains(given.get(i))) out.add(given.get(i));
    }
    return Scala.seq(out);
  }

  private void collectAndAsk() {
    List again = new ArrayList();
    for (int i = 0; i < keys.size(); i++) {
      KeySet set = (KeySet) keys.get(i);
      if (set.isBroadcast()) {
        set.take(finished(set.expression()));
      } else {
        again.add(set);
      }
    }
    KeySet.collect(again, skipping);
    ask();
  }

  /** The expression that Spark waited for. When it reuses exchanges it copies expressions, so the
      one that was put into the plan may not be the one that has the values. */
  private InSubqueryExec finished(InSubqueryExec put) {
    if (put.values().isDefined()) return put;
    List scans = skipping.executions().runningScans();
    for (int i = 0; i < scans.size(); i++) {
      FileSourceScanExec scan = (FileSourceScanExec) scans.get(i);
      if (scan.relation().location() != this) continue;
      List conditions = Scala.list(scan.dataFilters());
      for (int j = 0; j < conditions.size(); j++) {
        if (!(conditions.get(j) instanceof DynamicPruningExpression)) continue;
        Object child = ((DynamicPruningExpression) conditions.get(j)).child();
        if (child instanceof InSubqueryExec
            && ((InSubqueryExec) child).exprId().equals(put.exprId())) {
          return (InSubqueryExec) child;
        }
      }
    }
    return null;
  }

  private Seq without(Seq listed) {
    List directories = Scala.list(listed);
    Folders now =
        read instanceof ReplaceableFiles
            ? ((ReplaceableFiles) read).now(folders(directories))
            : null;
    List out = new ArrayList();
    int total = 0;
    int unknown = 0;
    int disproved = 0;
    int[] legs = new int[answer.legs()];
    long bytes = 0;
    long disprovedBytes = 0;
    for (int i = 0; i < directories.size(); i++) {
      PartitionDirectory directory = (PartitionDirectory) directories.get(i);
      List files = Scala.list(directory.files());
      List kept = new ArrayList();
      for (int j = 0; j < files.size(); j++) {
        FileStatusWithMetadata file = (FileStatusWithMetadata) files.get(j);
        int ordinal = ordinal(directory, file);
        // A file that was replaced since it was listed is not the one that is known.
        if (now != null && answer.disproves(ordinal) && !now.has(file.fileStatus())) ordinal = -1;
        total++;
        bytes += file.getLen();
        if (ordinal < 0) unknown++;
        for (int k = 0; k < legs.length; k++) {
          if (answer.disproves(k, ordinal)) legs[k]++;
        }
        if (answer.disproves(ordinal)) {
          disproved++;
          disprovedBytes += file.getLen();
        } else {
          kept.add(file);
        }
      }
      if (!kept.isEmpty()) out.add(new PartitionDirectory(directory.values(), Scala.seq(kept)));
    }
    counts = new HashMap(answer.header());
    counts.put("total", Integer.valueOf(total));
    counts.put("unknown", Integer.valueOf(unknown));
    counts.put("disproved", Integer.valueOf(disproved));
    counts.put("counts", legs);
    counts.put("bytes", Long.valueOf(bytes));
    counts.put("disproved bytes", Long.valueOf(disprovedBytes));
    learn(total, legs);
    return Scala.seq(out);
  }

  private int ordinal(PartitionDirectory directory, FileStatusWithMetadata file) {
    String mark = read.mark(directory.values(), file.fileStatus());
    return answer.ordinal(file.getPath().toString(), file.getLen(), mark);
  }

  /** The folders with files that are disproved. */
  private Set folders(List directories) {
    Set out = new HashSet();
    for (int i = 0; i < directories.size() && answer.index() != null; i++) {
      PartitionDirectory directory = (PartitionDirectory) directories.get(i);
      List files = Scala.list(directory.files());
      for (int j = 0; j < files.size(); j++) {
        FileStatusWithMetadata file = (FileStatusWithMetadata) files.get(j);
        if (answer.disproves(ordinal(directory, file))) out.add(file.getPath().getParent());
      }
    }
    return out;
  }

  /** Notes what each set of keys disproved alone. */
  private void learn(int total, int[] legs) {
    for (int i = 0; i < keys.size(); i++) {
      KeySet set = (KeySet) keys.get(i);
      if (set.values() == null || total == 0) continue;
      int most = 0;
      for (int k = 0; k < legs.length; k++) {
        if (answer.isOf(k, set.dimension())) most = Math.max(most, legs[k]);
      }
      skipping.history().saved(set.expression().exprId(), (double) most / total);
    }
  }

  /** Counts what happened to each file of a scan with these filters, for explain. */
  public Map count(Seq partitionFilters, Seq dataFilters) {
    if (counts == null) {
      if (answer == null) ask();
      without(inner.listFiles(partitionFilters, own(dataFilters)));
    }
    Map out = new HashMap(counts);
    List described = new ArrayList();
    for (int i = 0; i < keys.size(); i++) {
      described.add(((KeySet) keys.get(i)).describe());
    }
    out.put("keys", described);
    out.put("format", Sizes.of(inner));
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
    StringBuilder out = new StringBuilder("Skipping(");
    for (int i = 0; i < keys.size(); i++) {
      KeySet set = (KeySet) keys.get(i);
      if (set.column() == null) continue;
      out.append(Filters.shape(set.column())).append(" by ").append(set.dimension()).append(", ");
    }
    return out.append(inner).append(")").toString();
  }

  /** Where keys are still to come they stand in the scan's own filters, which Spark compares;
      except those of a dimension that is read again, so such a scan equals only itself. */
  public boolean equals(Object other) {
    if (this == other) return true;
    if (!(other instanceof PrunedFileIndex)) return false;
    PrunedFileIndex that = (PrunedFileIndex) other;
    if (!inner.equals(that.inner)) return false;
    if (answer != null || that.answer != null) {
      return answer != null && answer.equals(that.answer);
    }
    return onlyBroadcasts() && that.onlyBroadcasts() && keys.size() == that.keys.size();
  }

  private boolean onlyBroadcasts() {
    for (int i = 0; i < keys.size(); i++) {
      if (!((KeySet) keys.get(i)).isBroadcast()) return false;
    }
    return true;
  }

  public int hashCode() {
    return inner.hashCode();
  }
}
