"""Read tables without Spark: matching rows, from the files that can match."""
