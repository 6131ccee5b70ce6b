"""What opens a table, and names its settings, store and builder: Spark, PyIceberg, delta-rs, Arrow."""
