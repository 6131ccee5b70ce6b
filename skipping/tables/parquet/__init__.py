"""Plain Parquet folders, by Spark and by pyarrow."""
