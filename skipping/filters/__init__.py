"""Translate filters of SQL, Arrow, Polars and PyIceberg to predicates of the index."""
