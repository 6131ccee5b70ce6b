package rewrite.jvm.source;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import rewrite.jvm.bridge.ObjectCopy;

/**
 * A proxy of a connector's scan in a logical plan: it reports a fraction of the scan's statistics,
 * and passes on everything else.
 *
 * <p>It has all interfaces of Spark that the scan has. No physical plan has it: OwnScanStrategy puts
 * the connector's scan back before Spark plans it.
 */
public record ReportedScan(Scan scan, double fraction) implements InvocationHandler {

  /** Returns a proxy of a scan; null if the scan reports no statistics itself. */
  static Scan of(Scan scan, double fraction) {
    if (!(scan instanceof SupportsReportStatistics)) return null;
    Set<Class<?>> interfaces = new LinkedHashSet<>();
    addInterfaces(scan.getClass(), interfaces);
    return (Scan) Proxy.newProxyInstance(
        Scan.class.getClassLoader(), interfaces.toArray(Class<?>[]::new),
        new ReportedScan(scan, fraction));
  }

  private static void addInterfaces(Class<?> type, Set<Class<?>> out) {
    boolean isSparks =
        Scan.class.isAssignableFrom(type) && type.isInterface()
            && type.getClassLoader() == Scan.class.getClassLoader();
    if (isSparks) out.add(type);
    for (Class<?> each : type.getInterfaces()) addInterfaces(each, out);
    if (type.getSuperclass() != null) addInterfaces(type.getSuperclass(), out);
  }

  /** Returns the scan behind a proxy; a scan that is no proxy itself. */
  public static Scan restore(Scan scan) {
    return isOne(scan) ? ((ReportedScan) Proxy.getInvocationHandler(scan)).scan : scan;
  }

  /** Returns a node of a plan with the connector's own scan; the node itself if it has that. */
  public static LogicalPlan restore(LogicalPlan node) {
    if (!isIn(node)) return node;
    Scan scan = ((DataSourceV2ScanRelation) node).scan();
    return ObjectCopy.replace(node, scan, restore(scan));
  }

  /** Whether a node of a plan has a proxy. */
  public static boolean isIn(LogicalPlan node) {
    return node instanceof DataSourceV2ScanRelation leaf && isOne(leaf.scan());
  }

  private static boolean isOne(Object scan) {
    return scan != null && Proxy.isProxyClass(scan.getClass())
        && Proxy.getInvocationHandler(scan) instanceof ReportedScan;
  }

  @Override public Object invoke(Object self, Method method, Object[] arguments) throws Throwable {
    switch (method.getName()) {
      case "equals":
        return isOne(arguments[0]) && equals(Proxy.getInvocationHandler(arguments[0]));
      case "hashCode":
        return hashCode();
      default:
    }
    try {
      Object result = method.invoke(scan, arguments);
      return result instanceof Statistics all && method.getName().equals("estimateStatistics")
          ? new Fraction(all, fraction)
          : result;
    } catch (InvocationTargetException failure) {
      throw failure.getCause();
    }
  }

  private static final class Fraction implements Statistics {
    private final OptionalLong bytes;
    private final OptionalLong rows;
    private final Map<NamedReference, ColumnStatistics> columns;

    Fraction(Statistics all, double fraction) {
      bytes = scale(all.sizeInBytes(), fraction);
      rows = scale(all.numRows(), fraction);
      columns = all.columnStats();
    }

    private static OptionalLong scale(OptionalLong number, double fraction) {
      return number.isEmpty()
          ? number
          : OptionalLong.of((long) Math.ceil(number.getAsLong() * fraction));
    }

    @Override public OptionalLong sizeInBytes() {
      return bytes;
    }

    @Override public OptionalLong numRows() {
      return rows;
    }

    @Override public Map<NamedReference, ColumnStatistics> columnStats() {
      return columns;
    }
  }
}
