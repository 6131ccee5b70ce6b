package rewrite.jvm.source;

import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.FileSourceOptions;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import rewrite.jvm.bridge.ScalaInterop;
import rewrite.jvm.predicate.ColumnResolver;
import rewrite.jvm.predicate.KeyValues;

/** A scan of files that Spark itself lists and reads. */
public abstract class FileSource implements ScanSource, ColumnResolver {
  protected final HadoopFsRelation relation;

  protected FileSource(HadoopFsRelation relation) {
    this.relation = relation;
  }

  @Override public ColumnResolver columns() {
    return this;
  }

  @Override public long bytes() {
    return relation.sizeInBytes();
  }

  @Override public boolean isPartition(List<String> path) {
    return relation.partitionSchema().getFieldIndex(path.get(0)).isDefined();
  }

  @Override public boolean isPartitioned(List<String> path) {
    return path.size() == 1 && isPartition(path);
  }

  @Override public boolean passesOverFiles() {
    FileSourceOptions options = new FileSourceOptions(relation.options());
    return options.ignoreMissingFiles() || options.ignoreCorruptFiles();
  }

  @Override public List<String> locations() {
    return directories().stream()
        .flatMap(directory -> ScalaInterop.asJava(directory.files()).stream())
        .map(file -> file.getPath().toString())
        .toList();
  }

  @Override public Set<String> withoutPartition(List<String> path, KeyValues values) {
    return partitionValues(path).findExcludedFiles(ColumnBounds.test(values));
  }

  @Override public ColumnBounds partitionValues(List<String> path) {
    if (!isPartitioned(path)) return null;
    StructType partition = relation.location().partitionSchema();
    int at = partition.fieldIndex(path.get(0));
    DataType type = partition.fields()[at].dataType();
    ColumnBounds bounds = new ColumnBounds(type);
    for (PartitionDirectory directory : directories()) {
      Object value = directory.values().get(at, type);
      for (FileStatusWithMetadata file : ScalaInterop.asJava(directory.files())) {
        String location = file.getPath().toString();
        if (value == null) {
          bounds.addNull(location);
        } else {
          bounds.add(location, value);
        }
      }
    }
    return bounds;
  }

  @Override public Set<String> findPrunable(FileCounter counter) {
    Set<String> out = new HashSet<>();
    for (PartitionDirectory directory : directories()) {
      for (FileStatusWithMetadata file : ScalaInterop.asJava(directory.files())) {
        String location = file.getPath().toString();
        String mark = mark(directory.values(), file.fileStatus());
        int ordinal = counter.ordinal(location, file.getLen(), mark);
        if (counter.drops(ordinal, location, file.getLen())) out.add(location);
      }
    }
    return out;
  }

  /** Returns the table format's file index with only the files that are not pruned, or null: then all
      have to be listed. It may list more, if it plans the scan again. */
  public FileIndex without(Set<String> pruned) {
    return null;
  }

  /** Whether `without` has such an index. */
  public boolean canListOthers() {
    return false;
  }

  /** Returns the files that it reads, by partition; empty where that is not known yet. */
  protected abstract List<PartitionDirectory> directories();

  /** Returns a relation of the same class that reads the same files and reports a fraction of their
      bytes; null if the format has none. */
  public HadoopFsRelation resize(double fraction) {
    return null;
  }

  /** Whether one file has to stay even if none can match. */
  public boolean keepsOne() {
    return false;
  }

  /** Returns the locations of files without rows, as far as that is known. */
  public Set<String> empty() {
    return Set.of();
  }

  /** Lists some folders as they are now; null if no file is ever replaced at its path. */
  public FolderListing listNow(Supplier<Collection<Path>> folders) {
    return null;
  }

  /** What identifies a file beside path and size; "" if nothing does. */
  public abstract String mark(InternalRow partition, FileStatus file);
}
