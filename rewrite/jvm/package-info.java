/**
 * The part of file skipping that runs inside Spark: it collects conditions and the keys of joins,
 * sends lookups to Python, and removes pruned files from scans.
 *
 * <p>Each package depends only on those before it:
 *
 * <pre>
 *   bridge      requests to Python and responses; the settings of the session; time budgets
 *   parser      the SQL statements (depends on bridge only)
 *   predicate   conditions, and how they are written into a request
 *   keys        the keys of joins, and what pruning by them has saved
 *   source      what a scan reads, for each table format
 *   scan        the rule on physical plans, and scans without the pruned files
 *   join        the rule on logical plans that adds the keys of joins to scans
 *   observe     what was skipped, and why not
 * </pre>
 *
 * SkippingExtension builds and connects them. tests/test_java_packages.py checks this order.
 *
 * <p>javac compiles these files into one jar for each Spark line: see .ci/jars.py.
 *
 * <p>Executors do not have these classes. So only transient fields, or a plan that stays on the
 * driver, may reference their objects.
 */
package rewrite.jvm;
