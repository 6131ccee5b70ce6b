"""Plain Parquet folders as pyarrow has them: no JVM, no Spark, and no log."""
