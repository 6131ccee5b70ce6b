/**
 * The rule on physical plans that prunes scans, and the scans without the pruned files.
 *
 * <p>Depends on `bridge`, `predicate`, `keys` and `source`.
 *
 * <p>Start with FilePruningRule: it decides what becomes of each scan. PhysicalScans opens a scan
 * of a plan as a PhysicalFileScan (Delta, Parquet) or a PhysicalBatchScan (Iceberg). ScanPruning
 * does the lookup. Its result is in a PrunedFileIndex or a PrunedBatchScan, which list the files
 * when Spark runs the scan. ScanFinder finds the scans of a plan, also after adaptive execution.
 */
package rewrite.jvm.scan;
