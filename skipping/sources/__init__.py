"""Opens tables by Spark, PyIceberg, delta-rs or pyarrow, with their settings, store and builder."""
