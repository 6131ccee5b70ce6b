"""What opens a table, and names its settings, its store and builder: Spark, PyIceberg, delta-rs."""
