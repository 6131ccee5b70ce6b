"""Recommend index types for columns (ANALYZE), measured in a sample of files."""
