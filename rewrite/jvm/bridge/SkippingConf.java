package rewrite.jvm.bridge;

import org.apache.spark.sql.internal.SQLConf;

/** The settings that Java uses, of the session that the calling thread works for. */
public final class SkippingConf {
  /** Prefix of every setting. */
  public static final String PREFIX = "spark.skipping.";

  private SkippingConf() {}

  /** Returns all settings of the session, including Spark's own. */
  public static SQLConf current() {
    return SQLConf.get();
  }

  public static boolean isEnabled() {
    return isTrue("enabled");
  }

  /** Whether keys of joins are collected. Spark plans its dynamic-pruning expressions only if its
      own switch is on. */
  public static boolean collectsKeys() {
    return isEnabled() && isTrue("dynamic.enabled") && current().dynamicPartitionPruningEnabled();
  }

  /** Whether keys also drop rows in the files that are read. */
  public static boolean filtersRows() {
    return isTrue("dynamic.rows");
  }

  /** Whether Spark prunes partitions by broadcasts only. */
  public static boolean reusesBroadcastsOnly() {
    return current().dynamicPartitionPruningReuseBroadcastOnly();
  }

  /** Whether the partitions and bounds of tables are used. */
  public static boolean usesStatistics() {
    return isTrue("statistics.enabled");
  }

  /** Whether joins use keys that metadata provide while a query is planned. */
  public static boolean usesStaticKeys() {
    return isEnabled() && usesStatistics() && isTrue("static.joins");
  }

  /** Whether Spark's optimizer gets the size that the index leaves of a scan. */
  public static boolean reportsSize() {
    return isTrue("report.size");
  }

  /** Whether explain shows the values of conditions. */
  public static boolean showsValues() {
    return "true".equalsIgnoreCase(get("explain.values", "false").trim());
  }

  /** Whether commands find their rows through the index. */
  public static boolean isDmlEnabled() {
    return isTrue("dml");
  }

  /** Whether a query fails if the index is unavailable. */
  public static boolean isStrict() {
    return "strict".equalsIgnoreCase(get("mode", "fallback").trim());
  }

  /** Whether the counts of queries may be written to the store. */
  public static boolean remembersWorkload() {
    return isTrue("workload");
  }

  /** Returns the address of the store; empty for the default. */
  public static String store() {
    return get("store", "").trim();
  }

  /** Returns the seconds that a query may wait for keys, as long as Spark waits for a broadcast. */
  static double patience() {
    long seconds = current().broadcastTimeout();
    return seconds > 0 ? seconds : Long.MAX_VALUE;
  }

  private static boolean isTrue(String name) {
    return !"false".equalsIgnoreCase(get(name, "true").trim());
  }

  /** Returns the text of a setting, by its name after the prefix. */
  static String get(String name, String defaultValue) {
    return current().getConfString(PREFIX + name, defaultValue);
  }
}
