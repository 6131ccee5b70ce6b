package rewrite.jvm.scan;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.DynamicPruningExpression;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.FileSourceScanExec;
import org.apache.spark.sql.execution.InSubqueryExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import rewrite.jvm.bridge.Failures;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.keys.JoinKeySet;
import rewrite.jvm.shims.AbstractFileIndex;
import rewrite.jvm.source.FileCounter;
import rewrite.jvm.source.FileSource;
import rewrite.jvm.source.FolderListing;
import scala.collection.Iterable;

/**
 * A table's file index without the pruned files.
 *
 * <p>The inner index lists the files of the version that the query reads, and this one only removes
 * files. Only the scan's transient relation references it, so it never reaches an executor.
 * Equality includes the pruned files: otherwise Spark would reuse an exchange with other rows.
 */
public final class PrunedFileIndex extends AbstractFileIndex {
  private final FileIndex inner;
  private final FileSource read;
  private final ScanPruning pruning;

  PrunedFileIndex(FileIndex inner, FileSource read, ScanPruning pruning) {
    this.inner = inner;
    this.read = read;
    this.pruning = pruning;
  }

  private record ListedFile(PartitionDirectory directory, FileStatusWithMetadata file) {
    String location() {
      return file.getPath().toString();
    }
  }

  @Override protected scala.collection.immutable.List<PartitionDirectory> list(
      Iterable<Expression> partitionFilters, Iterable<Expression> dataFilters) {
    try {
      if (pruning.response() == null) {
        if (!pruning.isCollected()) acceptBroadcasts();
        pruning.collectAndLookUp();
      }
      return ScalaInterop.asScala(listRemaining(partitionFilters, dataFilters, pruning));
    } catch (Throwable failure) {
      Failures.passOn(failure);
      scala.collection.immutable.List<PartitionDirectory> all =
          listAll(partitionFilters, dataFilters).toList();
      pruning.readAll(Failures.forgive(failure));
      return all;
    }
  }

  /** Lists the files that are not pruned. Where the format can do that without a listing of all of
      them, this saves most of the time if they are many. */
  private List<PartitionDirectory> listRemaining(
      Iterable<Expression> partitionFilters, Iterable<Expression> dataFilters,
      ScanPruning pruning) {
    if (read.canListOthers()) {
      FileCounter counter = pruning.createCounter(read.locations());
      FileIndex others = read.without(read.findPrunable(counter));
      if (others != null) {
        List<PartitionDirectory> out =
            ScalaInterop.asJava(list(others, partitionFilters, dataFilters));
        if (files(out).count() == counter.remaining()) {
          pruning.finish(counter);
          return out;
        }
      }
    }
    return prune(listAll(partitionFilters, dataFilters), pruning);
  }

  private Iterable<PartitionDirectory> listAll(
      Iterable<Expression> partitionFilters, Iterable<Expression> dataFilters) {
    return list(inner, partitionFilters, dataFilters);
  }

  /** Lists by the scan's own filters only: Delta would plan again for the ranges of keys. */
  private Iterable<PartitionDirectory> list(
      FileIndex index, Iterable<Expression> partitionFilters, Iterable<Expression> dataFilters) {
    List<Expression> own = ScalaInterop.asJava(dataFilters);
    own.retainAll(pruning.filters());
    return index.listFiles(partitionFilters.toList(), ScalaInterop.asScala(own));
  }

  /** Takes the keys that Spark has collected. */
  private void acceptBroadcasts() {
    for (JoinKeySet set : pruning.keys()) {
      if (set.isBroadcast()) set.accept(findFinal(set.expression()), pruning.maxBytes());
    }
  }

  /** Returns the expression that has the values, or null. When Spark reuses exchanges it copies
      expressions, so it may not be the one in the original plan. */
  private InSubqueryExec findFinal(InSubqueryExec original) {
    if (original.values().isDefined()) return original;
    for (SparkPlan node : ScanFinder.findRunning()) {
      if (!(node instanceof FileSourceScanExec scan) || scan.relation().location() != this) continue;
      for (Expression filter : ScalaInterop.asJava(scan.dataFilters())) {
        if (filter instanceof DynamicPruningExpression dynamic
            && dynamic.child() instanceof InSubqueryExec in
            && in.exprId().equals(original.exprId())) {
          return in;
        }
      }
    }
    return null;
  }

  /** Returns the table format's own index. */
  public FileIndex inner() {
    return inner;
  }

  private List<PartitionDirectory> prune(Iterable<PartitionDirectory> all, ScanPruning pruning) {
    List<PartitionDirectory> directories = ScalaInterop.asJava(all);
    FolderListing current = read.listNow(() -> findFolders(directories, pruning));
    FileCounter counter =
        pruning.createCounter(files(directories).map(ListedFile::location).toList());
    List<PartitionDirectory> out = directories.stream()
        .map(directory -> {
          List<FileStatusWithMetadata> files = ScalaInterop.asJava(directory.files());
          files.removeIf(
              file -> isPruned(new ListedFile(directory, file), pruning, current, counter));
          return new PartitionDirectory(directory.values(), ScalaInterop.asScala(files));
        })
        .filter(directory -> !directory.files().isEmpty())
        .collect(Collectors.toCollection(ArrayList::new));
    if (out.isEmpty() && read.keepsOne()) keepOne(directories, out, counter);
    pruning.finish(counter);
    return out;
  }

  private boolean isPruned(
      ListedFile file, ScanPruning pruning, FolderListing current, FileCounter counter) {
    int ordinal = ordinal(file, pruning);
    // A file that was replaced after the listing is not the one in the index.
    boolean isReplaced =
        current != null && pruning.response().prunes(ordinal)
            && !current.has(file.file.fileStatus());
    return counter.drops(isReplaced ? -1 : ordinal, file.location(), file.file.getLen());
  }

  /** Adds the smallest file that may have rows. */
  private void keepOne(
      List<PartitionDirectory> directories, List<PartitionDirectory> out, FileCounter counter) {
    Set<String> empty = read.empty();
    files(directories)
        .filter(listed -> !empty.contains(listed.location()))
        .reduce((one, other) -> other.file.getLen() < one.file.getLen() ? other : one)
        .ifPresent(smallest -> {
          counter.keep(smallest.file.getLen());
          out.add(
              new PartitionDirectory(
                  smallest.directory.values(), ScalaInterop.asScala(List.of(smallest.file))));
        });
  }

  private static Stream<ListedFile> files(List<PartitionDirectory> directories) {
    return directories.stream()
        .flatMap(directory ->
            ScalaInterop.asJava(directory.files()).stream()
                .map(file -> new ListedFile(directory, file)));
  }

  private int ordinal(ListedFile listed, ScanPruning pruning) {
    String mark = read.mark(listed.directory.values(), listed.file.fileStatus());
    return pruning.response().ordinal(listed.location(), listed.file.getLen(), mark);
  }

  /** Returns the folders with files that the index prunes. */
  private Collection<Path> findFolders(List<PartitionDirectory> directories, ScanPruning pruning) {
    if (pruning.response().index() == null) return Set.of();
    return files(directories)
        .filter(file -> pruning.response().prunes(ordinal(file, pruning)))
        .map(file -> file.file.getPath().getParent())
        .collect(Collectors.toSet());
  }

  /** Counts the files of a scan with these filters, for explain. */
  Map<String, Object> count(
      Iterable<Expression> partitionFilters, Iterable<Expression> dataFilters) {
    ScanPruning forecast = pruning.forecast();
    if (!forecast.isCounted()) listRemaining(partitionFilters, dataFilters, forecast);
    return forecast.describe();
  }

  ScanPruning pruning() {
    return pruning;
  }

  @Override public scala.collection.immutable.List<Path> rootPaths() {
    return inner.rootPaths().toList();
  }

  @Override public String[] inputFiles() {
    return inner.inputFiles();
  }

  @Override public void refresh() {
    inner.refresh();
  }

  @Override public long sizeInBytes() {
    return inner.sizeInBytes();
  }

  @Override public StructType partitionSchema() {
    return inner.partitionSchema();
  }

  @Override public scala.Option<Object> metadataOpsTimeNs() {
    return inner.metadataOpsTimeNs();
  }

  @Override public boolean equals(Object other) {
    try {
      return this == other
          || other instanceof PrunedFileIndex that
              && inner.equals(that.inner)
              && pruning.prunesLike(that.pruning);
    } catch (Throwable failure) {
      Failures.forgive(failure);
      return this == other;
    }
  }

  /** Not that of the inner index: Delta's hashes all files. */
  @Override public int hashCode() {
    return inner.rootPaths().hashCode();
  }
}
