"""Iceberg tables, as Spark and as PyIceberg have them."""
