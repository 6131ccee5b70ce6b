"""Filters of SQL, Arrow, Polars and PyIceberg as predicates of the index."""
