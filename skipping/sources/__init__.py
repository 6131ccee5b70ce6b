"""What opens a table, and names settings, store and builder: Spark, PyIceberg, delta-rs, Arrow."""
