package rewrite.jvm.bridge;

import java.lang.reflect.Field;
import org.apache.spark.sql.SparkSession;

/** The class loaders of threads that open sessions for clients of Spark's Thrift server. */
public final class ClassLoaders {
  private static final String HIVE = "org.apache.hadoop.hive.ql.session.SessionState";

  private ClassLoaders() {}

  /**
   * Lets such a thread find the jars that Spark was started with, for as long as Spark runs.
   *
   * <p>Hive gives the thread a loader that only knows the class path, so that catalogs in
   * spark.jars.packages, as Delta's, are not found (delta-io/delta#1332, apache/iceberg#3010). To
   * run a statement, Spark sets its own loader, also in Hive's session. When that ends, it closes
   * all loaders above its first one, among them Spark's loader with the jars. From then on no
   * session finds Delta (delta-io/delta#1341).
   */
  public static void repair(SparkSession session) {
    ClassLoader required = session.sharedState().jarClassLoader();
    keepOpen(required);
    for (ClassLoader each = Thread.currentThread().getContextClassLoader(); each != null;
        each = each.getParent()) {
      if (each == required || each == required.getParent()) return;
    }
    Thread.currentThread().setContextClassLoader(required);
  }

  /** Stops the Hive session of this thread, if it has one, from closing loaders above this one. */
  private static void keepOpen(ClassLoader lowest) {
    try {
      // Spark is also built without Hive.
      Class<?> type = Class.forName(HIVE, true, ClassLoaders.class.getClassLoader());
      Object hive = type.getMethod("get").invoke(null);
      if (hive == null) return;
      Field parent = type.getDeclaredField("parentLoader");
      parent.setAccessible(true);
      parent.set(hive, lowest);
    } catch (Exception | LinkageError noHive) {
      return;
    }
  }
}
