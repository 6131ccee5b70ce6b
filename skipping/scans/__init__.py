"""Reading tables without Spark: the rows of the files that can match."""
