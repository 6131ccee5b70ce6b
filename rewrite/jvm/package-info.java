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
 * <p>Janino, which ships with Spark, compiles these files when the first session of a release
 * starts: no build is needed, and one source fits every Spark that is supported. It is a small
 * compiler: it knows no lambdas and no method references, does not infer types (no diamond, no
 * `var`), checks no generics and does not make the bridge methods that they need, and takes
 * arguments of `varargs` only as an array. Types of collections are therefore raw, values are boxed
 * with `valueOf`, and Scala's classes are used by their erased signatures (`X$.MODULE$`,
 * AbstractFunction1).
 *
 * <p>Executors do not have these classes. An object of theirs stands only behind transient fields,
 * or in a plan that stays on the driver.
 */
package rewrite.jvm;
