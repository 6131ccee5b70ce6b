package rewrite.jvm.bridge;

import org.apache.spark.sql.classic.SparkSession;

/** The class loader of the calling thread. */
public final class ClassLoaders {
  private ClassLoaders() {}

  /**
   * Lets the thread that opens a session find the jars that Spark was started with.
   *
   * <p>Spark's Thrift server opens sessions in threads whose loader is Hive's, which only knows the
   * class path: catalogs in spark.jars.packages, as Delta's, would not be found
   * (delta-io/delta#1332, apache/iceberg#3010). When it runs statements it sets this loader itself.
   */
  public static void mend(SparkSession session) {
    ClassLoader needed = session.sharedState().jarClassLoader();
    ClassLoader known = needed.getParent();
    for (ClassLoader each = Thread.currentThread().getContextClassLoader(); each != null;
        each = each.getParent()) {
      if (each == needed || each == known) return;
    }
    Thread.currentThread().setContextClassLoader(needed);
  }
}
