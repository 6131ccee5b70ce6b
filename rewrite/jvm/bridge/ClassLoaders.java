package rewrite.jvm.bridge;

import java.lang.reflect.Field;
import org.apache.spark.sql.SparkSession;

/** The class loaders of threads that open sessions for clients of Spark's Thrift server. */
public final class ClassLoaders {
  private static final String HIVE = "org.apache.hadoop.hive.ql.session.SessionState";

  private ClassLoaders() {}

  /**
   * Lets such a thread find the jars that Spark was started with, and keeps the others from losing
   * them.
   *
   * <p>Hive gives the thread a loader that only knows the class path: catalogs in
   * spark.jars.packages, as Delta's, would not be found (delta-io/delta#1332, apache/iceberg#3010).
   * Running a statement Spark sets this loader itself, and gives it to Hive's session too, which
   * closes all loaders above its first one when it ends. Among these is the one of Spark with the
   * jars: from then on nobody would find Delta (delta-io/delta#1341).
   */
  public static void mend(SparkSession session) {
    ClassLoader needed = session.sharedState().jarClassLoader();
    keepOpen(needed);
    for (ClassLoader each = Thread.currentThread().getContextClassLoader(); each != null;
        each = each.getParent()) {
      if (each == needed || each == needed.getParent()) return;
    }
    Thread.currentThread().setContextClassLoader(needed);
  }

  /** Lets Hive's session of this thread, if there is one, close no loader above this one. */
  private static void keepOpen(ClassLoader lowest) {
    try {
      // Spark is also built without Hive.
      Class type = Class.forName(HIVE, true, ClassLoaders.class.getClassLoader());
      Object hive = type.getMethod("get", new Class[0]).invoke(null, new Object[0]);
      if (hive == null) return;
      Field parent = type.getDeclaredField("parentLoader");
      parent.setAccessible(true);
      parent.set(hive, lowest);
    } catch (Exception none) {
      return;
    } catch (LinkageError none) {
      return;
    }
  }
}
