package rewrite.jvm.bridge;

import org.apache.spark.sql.internal.SQLConf;

/** The settings of the session that the calling thread works for, as far as Java obeys them. */
public final class SkippingConf {
  /** Prefix of every setting. */
  public static final String PREFIX = "spark.skipping.";

  private SkippingConf() {}

  /** All settings of the session, Spark's own too. */
  public static SQLConf current() {
    return org.apache.spark.sql.internal.SQLConf$.MODULE$.get();
  }

  public static boolean isEnabled() {
    return isTrue("enabled");
  }

  /** Whether the keys of joins are collected. Spark plans its dynamic-pruning expressions only
      where its own switch is on. */
  public static boolean collectsKeys() {
    return isEnabled() && isTrue("dynamic.enabled") && current().dynamicPartitionPruningEnabled();
  }

  /** Whether keys also drop rows in the files that are read. */
  public static boolean filtersRows() {
    return isTrue("dynamic.rows");
  }

  /** Whether Spark prunes partitions only by what it broadcasts. */
  public static boolean reusesBroadcastsOnly() {
    return current().dynamicPartitionPruningReuseBroadcastOnly();
  }

  /** Whether tables are asked what they know of their files. */
  public static boolean usesStatistics() {
    return isTrue("statistics.enabled");
  }

  /** Whether explain shows the values of conditions. */
  public static boolean showsValues() {
    return "true".equalsIgnoreCase(get("explain.values", "false").trim());
  }

  /** Whether commands look for their rows through the index. */
  public static boolean servesCommands() {
    return isTrue("dml");
  }

  /** Whether a query fails where the index cannot be asked. */
  public static boolean isStrict() {
    return "strict".equalsIgnoreCase(get("mode", "fallback").trim());
  }

  /** Seconds that a query may wait for keys; Spark waits so long for a broadcast. */
  public static double patience() {
    long seconds = current().broadcastTimeout();
    return seconds > 0 ? seconds : Long.MAX_VALUE;
  }

  private static boolean isTrue(String name) {
    return !"false".equalsIgnoreCase(get(name, "true").trim());
  }

  /** The text of a setting, by its name behind the prefix. */
  static String get(String name, String otherwise) {
    return current().getConfString(PREFIX + name, otherwise);
  }
}
