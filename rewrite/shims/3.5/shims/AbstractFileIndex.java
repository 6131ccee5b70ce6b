package rewrite.jvm.shims;

import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import scala.collection.Iterable;
import scala.collection.immutable.List;
import scala.collection.Seq;

/**
 * A file index whose methods name no Seq.
 *
 * <p>Until Scala 2.12 a Seq is that of scala.collection; see 4.0.
 */
public abstract class AbstractFileIndex implements FileIndex {
  public Seq<PartitionDirectory> listFiles(
      Seq<Expression> partitionFilters, Seq<Expression> dataFilters) {
    return list(partitionFilters, dataFilters);
  }

  /** As `listFiles`. */
  protected abstract List<PartitionDirectory> list(
      Iterable<Expression> partitionFilters, Iterable<Expression> dataFilters);
}
