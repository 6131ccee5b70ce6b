"""Delta tables as delta-rs has them (the package `deltalake`): no JVM, no Spark."""
