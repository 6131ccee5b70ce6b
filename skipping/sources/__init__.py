"""Open tables with Spark, PyIceberg, delta-rs or pyarrow, with their settings and store."""
