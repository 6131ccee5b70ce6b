package rewrite.jvm.source;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.util.Set;
import org.apache.spark.sql.catalyst.catalog.CatalogColumnStat;
import org.apache.spark.sql.catalyst.catalog.CatalogStatistics;
import org.apache.spark.sql.catalyst.catalog.CatalogTable;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.sources.BaseRelation;
import rewrite.jvm.bridge.IndexClient;
import rewrite.jvm.bridge.ObjectCopy;
import rewrite.jvm.bridge.ScalaInterop;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Map;
import scala.math.BigInt;

/**
 * The fraction of a scan that Spark's optimizer takes it for.
 *
 * <p>It is put into the statistics of the scan's catalog table, as Spark does for partitions. They
 * are no part of a plan's canonical form, so that equal scans stay equal. A scan by path has no
 * catalog table; see `FileSource.resize`. For a connector's scan, see ReportedScan.
 */
public final class ReportedSize {
  private static final TreeNodeTag<ReportedSize> TAG = new TreeNodeTag<>("rewrite.size");

  private final double fraction;
  private final BigInteger allBytes;

  private ReportedSize(double fraction, BigInteger allBytes) {
    this.fraction = fraction;
    this.allBytes = allBytes;
  }

  /** Returns the fraction of a leaf of a plan that was reported; 1 if nothing was. */
  public static double fraction(LogicalPlan leaf) {
    ReportedSize known = ScalaInterop.orNull(leaf.getTagValue(TAG));
    return known == null ? 1 : known.fraction;
  }

  /** Returns Spark's estimate of a leaf of a plan without this project. */
  public static BigInteger allBytes(LogicalPlan leaf) {
    ReportedSize known = ScalaInterop.orNull(leaf.getTagValue(TAG));
    return known == null ? leaf.stats().sizeInBytes().bigInteger() : known.allBytes;
  }

  /** Returns a scan as it is without this project; the scan itself if nothing was reported. */
  public static LogicalPlan restore(LogicalPlan leaf, IndexClient client) {
    LogicalPlan out =
        leaf instanceof LogicalRelation files
            ? restoreFiles(files, client)
            : ReportedScan.restore(leaf);
    if (out != leaf) out.unsetTagValue(TAG);
    return out;
  }

  private static LogicalRelation restoreFiles(LogicalRelation leaf, IndexClient client) {
    CatalogTable table = ScalaInterop.orNull(leaf.catalogTable());
    if (table != null && ScalaInterop.orNull(table.stats()) instanceof Reduced reduced) {
      return withStatistics(leaf, reduced.original);
    }
    // Not the relation of then: Spark may have changed its schema.
    return leaf.getTagValue(TAG).isDefined()
            && ScanSources.of(leaf, client) instanceof FileSource source
        ? ObjectCopy.replace(leaf, leaf.relation(), source.resize(1))
        : leaf;
  }

  /** Returns a scan that reports a fraction of the bytes and rows of another one, which has its own
      statistics; the other one if that cannot be. Columns of the conditions keep their distinct
      values: Spark estimates by them which part of the rows meets the conditions. */
  public static LogicalPlan report(
      LogicalPlan leaf, ScanSource source, double fraction, Set<String> conditioned) {
    LogicalPlan out = leaf;
    BigInteger bytes = null;
    if (leaf instanceof DataSourceV2ScanRelation relation) {
      Scan scan = ReportedScan.of(relation.scan(), fraction);
      if (scan != null) out = ObjectCopy.replace(relation, relation.scan(), scan);
    } else if (leaf instanceof LogicalRelation files && files.catalogTable().isDefined()) {
      CatalogStatistics own = ScalaInterop.orNull(files.catalogTable().get().stats());
      CatalogStatistics reduced =
          own == null
              ? new Reduced(null, scale(leaf.stats().sizeInBytes(), fraction))
              : new Reduced(own, fraction, conditioned);
      out = withStatistics(files, Option.apply(reduced));
    } else if (leaf instanceof LogicalRelation files && source instanceof FileSource own) {
      BaseRelation relation = own.resize(fraction);
      if (relation != null) out = ObjectCopy.replace(files, files.relation(), relation);
      bytes = BigInteger.valueOf(own.bytes());
    }
    if (out == leaf) return leaf;
    if (bytes == null) bytes = leaf.stats().sizeInBytes().bigInteger();
    out.setTagValue(TAG, new ReportedSize(fraction, bytes));
    PlannedLookup.keep(out);
    return out;
  }

  private static LogicalRelation withStatistics(
      LogicalRelation leaf, Option<CatalogStatistics> statistics) {
    try {
      CatalogTable table = ObjectCopy.with(leaf.catalogTable().get(), "stats", statistics);
      return ObjectCopy.replace(leaf, leaf.catalogTable(), Option.apply(table));
    } catch (ReflectiveOperationException changed) {
      throw new IllegalStateException(changed);
    }
  }

  private static BigInt scale(BigInt number, double fraction) {
    BigDecimal scaled = new BigDecimal(number.bigInteger()).multiply(BigDecimal.valueOf(fraction));
    BigInteger rounded = scaled.setScale(0, RoundingMode.CEILING).toBigInteger();
    return new BigInt(rounded.min(number.bigInteger()));
  }

  private static Option<BigInt> scale(Option<BigInt> number, double fraction) {
    return number.isEmpty() ? number : Option.apply(scale(number.get(), fraction));
  }

  /** Statistics that know what they were. */
  private static final class Reduced extends CatalogStatistics {
    private static final long serialVersionUID = 1;

    private final Option<CatalogStatistics> original;

    Reduced(CatalogStatistics none, BigInt bytes) {
      super(bytes, Option.empty(), Map$.MODULE$.empty());
      original = Option.apply(none);
    }

    Reduced(CatalogStatistics all, double fraction, Set<String> conditioned) {
      super(
          scale(all.sizeInBytes(), fraction), scale(all.rowCount(), fraction),
          scaleAll(all.colStats(), fraction, conditioned));
      original = Option.apply(all);
    }

    @SuppressWarnings("unchecked") // Java does not know the type of Scala's `+`
    private static Map<String, CatalogColumnStat> scaleAll(
        Map<String, CatalogColumnStat> columns, double fraction, Set<String> conditioned) {
      Map<String, CatalogColumnStat> out = columns;
      for (Tuple2<String, CatalogColumnStat> column : ScalaInterop.asJava(columns)) {
        CatalogColumnStat all = column._2();
        CatalogColumnStat some =
            all.copy(
                conditioned.contains(column._1())
                    ? all.distinctCount()
                    : scale(all.distinctCount(), fraction),
                all.min(), all.max(), scale(all.nullCount(), fraction), all.avgLen(),
                all.maxLen(), all.histogram(), all.version());
        out = out.$plus(new Tuple2<>(column._1(), some));
      }
      return out;
    }
  }
}
