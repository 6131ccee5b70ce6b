"""Delta tables, by Spark and by delta-rs (the package `deltalake`)."""
