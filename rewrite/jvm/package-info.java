/**
 * The half of file skipping that runs inside Spark: it collects conditions and the keys of joins,
 * asks Python, and leaves files out.
 *
 * <p>Packages, each of which knows only those before it:
 *
 * <pre>
 *   bridge      asks Python and reads its answers; the settings of the session; time limits
 *   parser      the SQL statements (knows only bridge)
 *   predicate   conditions, and how they are written in a message
 *   keys        the keys of joins, and what pruning by them has saved so far
 *   source      what a scan reads, for each table format
 *   scan        the rule on physical plans, and scans less the files that are pruned
 *   join        the rule on logical plans that puts the keys of joins on scans
 *   observe     what was skipped, and why not
 * </pre>
 *
 * SkippingExtension builds and connects them. tests/test_java_packages.py holds this order.
 *
 * <p>javac compiles these files into one jar for each Spark line: see .ci/jars.py.
 *
 * <p>Executors do not have these classes. An object of theirs stands only behind transient fields,
 * or in a plan that stays on the driver.
 */
package rewrite.jvm;
