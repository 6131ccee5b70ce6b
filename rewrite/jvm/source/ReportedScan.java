package rewrite.jvm.source;

import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
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
    for (Class<?> type = scan.getClass(); type != null; type = type.getSuperclass()) {
      for (Class<?> each : type.getInterfaces()) {
        boolean isSparks = Scan.class.isAssignableFrom(each) && isVisible(each);
        if (isSparks) interfaces.add(each);
      }
    }
    return (Scan) Proxy.newProxyInstance(
        Scan.class.getClassLoader(), interfaces.toArray(Class<?>[]::new),
        new ReportedScan(scan, fraction));
  }

  private static boolean isVisible(Class<?> type) {
    return Modifier.isPublic(type.getModifiers())
        && type.getClassLoader() == Scan.class.getClassLoader();
  }

  /** Returns the scan behind a proxy; the scan itself if it is none. */
  public static Scan restore(Scan scan) {
    return isOne(scan) ? ((ReportedScan) Proxy.getInvocationHandler(scan)).scan : scan;
  }

  /** Returns a node of a plan with the connector's own scan; the node itself if it has that. */
  public static LogicalPlan restore(LogicalPlan node) {
    return node instanceof DataSourceV2ScanRelation leaf && isOne(leaf.scan())
        ? ObjectCopy.replace(leaf, leaf.scan(), restore(leaf.scan()))
        : node;
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

  private record Fraction(Statistics all, double fraction) implements Statistics {
    @Override public OptionalLong sizeInBytes() {
      return scale(all.sizeInBytes());
    }

    @Override public OptionalLong numRows() {
      return scale(all.numRows());
    }

    @Override public Map<NamedReference, ColumnStatistics> columnStats() {
      return all.columnStats();
    }

    private OptionalLong scale(OptionalLong number) {
      return number.isEmpty()
          ? number
          : OptionalLong.of((long) Math.ceil(number.getAsLong() * fraction));
    }
  }
}
