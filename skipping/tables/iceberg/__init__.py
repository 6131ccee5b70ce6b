"""Iceberg tables, by Spark and by PyIceberg."""
