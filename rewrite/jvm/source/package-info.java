/**
 * What a scan reads: its table, version, columns and files, for each table format; and the pruning
 * by the table's own partitions and bounds.
 *
 * <p>Depends on `bridge` and `predicate`. Only DeltaSource and the Iceberg classes name those of a
 * format; DeltaFormat and IcebergFormat load them when a scan is of the format.
 *
 * <p>Start with ScanSources, which finds the ScanSource of a plan's leaf; then DeltaSource,
 * TableStatistics, and FileCounter, which counts what is pruned.
 */
package rewrite.jvm.source;
