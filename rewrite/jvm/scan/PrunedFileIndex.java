package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Collections;
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
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.shims.AbstractFileIndex;
import rewrite.jvm.source.FileSource;
import rewrite.jvm.source.FolderListing;
import rewrite.jvm.source.ReplaceableFiles;
import rewrite.jvm.source.FileCounter;

/**
 * A table's file index less the files that are pruned.
 *
 * <p>The inner index lists the files of the version that the query reads; this one only leaves out.
 * It stands behind the scan's transient relation and never reaches an executor. Equality includes
 * what is left out: a pruned scan is another scan, or reused exchanges would return wrong rows.
 */
public final class PrunedFileIndex extends AbstractFileIndex {
  private final FileIndex inner;
  private final FileSource read;
  private final ScanPruning pruning;

  public PrunedFileIndex(FileIndex inner, FileSource read, ScanPruning pruning) {
    this.inner = inner;
    this.read = read;
    this.pruning = pruning;
  }

  protected scala.collection.immutable.List list(
      scala.collection.Iterable partitionFilters, scala.collection.Iterable dataFilters) {
    try {
      scala.collection.Iterable listed = listed(partitionFilters, dataFilters);
      if (!pruning.isAsked()) {
        if (!pruning.isCollected()) takeFinished();
        pruning.collectAndAsk();
      }
      return without(listed, pruning);
    } catch (Throwable failure) {
      Failures.passOn(failure);
      scala.collection.immutable.List listed =
          listed(partitionFilters, dataFilters).toList();
      pruning.giveUp(Failures.forgive(failure));
      return listed;
    }
  }

  private scala.collection.Iterable listed(
      scala.collection.Iterable partitionFilters, scala.collection.Iterable dataFilters) {
    return inner.listFiles(partitionFilters.toList(), own(dataFilters));
  }

  /** The scan's own filters of those given: Delta would plan anew for the ranges of keys. */
  private scala.collection.immutable.List own(scala.collection.Iterable dataFilters) {
    List out = new ArrayList();
    List given = ScalaInterop.asJava(dataFilters);
    for (int i = 0; i < given.size(); i++) {
      if (pruning.filters().contains(given.get(i))) out.add(given.get(i));
    }
    return ScalaInterop.asScala(out);
  }

  /** Takes the keys that Spark waited for. */
  private void takeFinished() {
    for (int i = 0; i < pruning.keys().size(); i++) {
      JoinKeySet set = (JoinKeySet) pruning.keys().get(i);
      if (set.isBroadcast()) set.take(finished(set.expression()), pruning.maxBytes());
    }
  }

  /** The expression that Spark waited for. When it reuses exchanges it copies expressions, so the
      one that was put into the plan may not be the one that has the values. */
  private InSubqueryExec finished(InSubqueryExec put) {
    if (put.values().isDefined()) return put;
    List scans = ScanFinder.running();
    for (int i = 0; i < scans.size(); i++) {
      if (!(scans.get(i) instanceof FileSourceScanExec)) continue;
      FileSourceScanExec scan = (FileSourceScanExec) scans.get(i);
      if (scan.relation().location() != this) continue;
      List conditions = ScalaInterop.asJava(scan.dataFilters());
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

  /** The table format's own. */
  public FileIndex inner() {
    return inner;
  }

  private scala.collection.immutable.List without(
      scala.collection.Iterable listed, ScanPruning pruning) {
    List directories = ScalaInterop.asJava(listed);
    FolderListing now =
        read instanceof ReplaceableFiles
            ? ((ReplaceableFiles) read).now(folders(directories, pruning))
            : null;
    List out = new ArrayList();
    FileCounter tally = pruning.tally(locations(directories));
    for (int i = 0; i < directories.size(); i++) {
      PartitionDirectory directory = (PartitionDirectory) directories.get(i);
      List files = ScalaInterop.asJava(directory.files());
      List kept = new ArrayList();
      for (int j = 0; j < files.size(); j++) {
        FileStatusWithMetadata file = (FileStatusWithMetadata) files.get(j);
        int ordinal = ordinal(directory, file, pruning);
        // A file that was replaced since it was listed is not the one that is known.
        boolean replaced =
            now != null && pruning.answer().prunes(ordinal) && !now.has(file.fileStatus());
        String location = file.getPath().toString();
        if (!tally.drops(replaced ? -1 : ordinal, location, file.getLen())) kept.add(file);
      }
      if (!kept.isEmpty()) {
        out.add(new PartitionDirectory(directory.values(), ScalaInterop.asScala(kept)));
      }
    }
    if (out.isEmpty() && read.keepsOne()) keepOne(directories, out, tally);
    pruning.done(tally);
    return ScalaInterop.asScala(out);
  }

  /** Adds the smallest file that may have rows. */
  private void keepOne(List directories, List out, FileCounter tally) {
    Set empty = read.empty();
    PartitionDirectory within = null;
    FileStatusWithMetadata smallest = null;
    for (int i = 0; i < directories.size(); i++) {
      PartitionDirectory directory = (PartitionDirectory) directories.get(i);
      List files = ScalaInterop.asJava(directory.files());
      for (int j = 0; j < files.size(); j++) {
        FileStatusWithMetadata file = (FileStatusWithMetadata) files.get(j);
        if (smallest != null && file.getLen() >= smallest.getLen()) continue;
        if (empty.contains(file.getPath().toString())) continue;
        within = directory;
        smallest = file;
      }
    }
    if (smallest == null) return;
    tally.keep(smallest.getLen());
    out.add(
        new PartitionDirectory(
            within.values(), ScalaInterop.asScala(Collections.singletonList(smallest))));
  }

  private static List locations(List directories) {
    List out = new ArrayList();
    for (int i = 0; i < directories.size(); i++) {
      List files = ScalaInterop.asJava(((PartitionDirectory) directories.get(i)).files());
      for (int j = 0; j < files.size(); j++) {
        out.add(((FileStatusWithMetadata) files.get(j)).getPath().toString());
      }
    }
    return out;
  }

  private int ordinal(
      PartitionDirectory directory, FileStatusWithMetadata file, ScanPruning pruning) {
    String mark = read.mark(directory.values(), file.fileStatus());
    return pruning.answer().ordinal(file.getPath().toString(), file.getLen(), mark);
  }

  /** The folders with files that are pruned. */
  private Set folders(List directories, ScanPruning pruning) {
    Set out = new HashSet();
    for (int i = 0; i < directories.size() && pruning.answer().index() != null; i++) {
      PartitionDirectory directory = (PartitionDirectory) directories.get(i);
      List files = ScalaInterop.asJava(directory.files());
      for (int j = 0; j < files.size(); j++) {
        FileStatusWithMetadata file = (FileStatusWithMetadata) files.get(j);
        if (pruning.answer().prunes(ordinal(directory, file, pruning))) {
          out.add(file.getPath().getParent());
        }
      }
    }
    return out;
  }

  /** Counts what happened to each file of a scan with these filters, for explain. */
  public Map count(
      scala.collection.Iterable partitionFilters, scala.collection.Iterable dataFilters) {
    ScanPruning shown = pruning.forecast();
    if (!shown.isCounted()) {
      without(listed(partitionFilters, dataFilters), shown);
    }
    return shown.describe();
  }

  /** What was counted when files were listed; null if they were not. */
  Map known() {
    return pruning.isCounted() ? pruning.describe() : null;
  }

  public scala.collection.immutable.List rootPaths() {
    return inner.rootPaths().toList();
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

  public boolean equals(Object other) {
    try {
      return this == other
          || other instanceof PrunedFileIndex
              && inner.equals(((PrunedFileIndex) other).inner)
              && pruning.prunesAs(((PrunedFileIndex) other).pruning);
    } catch (Throwable failure) {
      Failures.forgive(failure);
      return this == other;
    }
  }

  public int hashCode() {
    return inner.hashCode();
  }
}
