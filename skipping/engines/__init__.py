"""What opens a table, and names its settings, its store and its builder: Spark, or PyIceberg."""
