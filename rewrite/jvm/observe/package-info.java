/**
 * Describes executed and planned scans: files skipped, reasons why not, sums by table, day and
 * predicate. Python reads it as JSON: see `rewrite/observe/`.
 *
 * <p>Depends on all other packages but `join` and `parser`; nothing depends on it.
 *
 * <p>Start with ScanReport, which describes the scans of a plan. ExecutionLog calls it for each
 * execution that has ended, and passes the result to TableTotals and Workload.
 */
package rewrite.jvm.observe;
