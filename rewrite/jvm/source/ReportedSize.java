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
import org.apache.spark.sql.execution.datasources.LogicalRelation;
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
 * catalog table; see `FileSource.resize`.
 */
public final class ReportedSize {
  private static final TreeNodeTag<ReportedSize> TAG = new TreeNodeTag<>("rewrite.size");
  private static final int TABLE = 2; // among the arguments of a LogicalRelation
  private static final int RELATION = 0;

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
  public static LogicalRelation restore(LogicalRelation leaf, IndexClient client) {
    CatalogTable table = ScalaInterop.orNull(leaf.catalogTable());
    LogicalRelation out = leaf;
    if (table != null && ScalaInterop.orNull(table.stats()) instanceof Reduced reduced) {
      out = withStatistics(leaf, reduced.original);
    } else if (leaf.getTagValue(TAG).isDefined()
        && ScanSources.of(leaf, client) instanceof FileSource source) {
      // Not the relation of then: Spark may have changed its schema.
      out = copy(leaf, RELATION, source.resize(1));
    }
    if (out != leaf) out.unsetTagValue(TAG);
    return out;
  }

  /** Returns a scan that reports a fraction of the bytes and rows of another one. The other one has
      its own statistics. Columns of the conditions keep their distinct values: Spark estimates by
      them which part of the rows meets the conditions. */
  public static LogicalRelation report(
      LogicalRelation leaf, FileSource source, double fraction, Set<String> conditioned) {
    LogicalRelation out;
    CatalogTable table = ScalaInterop.orNull(leaf.catalogTable());
    if (table == null) {
      BaseRelation relation = source.resize(fraction);
      if (relation == null) return leaf;
      out = copy(leaf, RELATION, relation);
    } else {
      CatalogStatistics own = ScalaInterop.orNull(table.stats());
      CatalogStatistics reduced =
          own == null
              ? new Reduced(null, scale(leaf.stats().sizeInBytes(), fraction))
              : new Reduced(own, fraction, conditioned);
      out = withStatistics(leaf, Option.apply(reduced));
    }
    BigInteger bytes =
        table == null
            ? BigInteger.valueOf(source.bytes())
            : leaf.stats().sizeInBytes().bigInteger();
    out.setTagValue(TAG, new ReportedSize(fraction, bytes));
    PlannedLookup.keep(out);
    return out;
  }

  private static LogicalRelation withStatistics(
      LogicalRelation leaf, Option<CatalogStatistics> statistics) {
    try {
      CatalogTable table = ObjectCopy.with(leaf.catalogTable().get(), "stats", statistics);
      return copy(leaf, TABLE, Option.apply(table));
    } catch (ReflectiveOperationException changed) {
      throw new IllegalStateException(changed);
    }
  }

  private static LogicalRelation copy(LogicalRelation leaf, int argument, Object value) {
    Object[] arguments = new Object[leaf.productArity()];
    for (int i = 0; i < arguments.length; i++) {
      arguments[i] = i == argument ? value : leaf.productElement(i);
    }
    return (LogicalRelation) leaf.makeCopy(arguments);
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
