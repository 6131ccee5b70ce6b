"""Reading the indexed columns of Parquet files as Spark would, without Spark."""
