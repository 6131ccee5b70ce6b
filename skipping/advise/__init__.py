"""ANALYZE: which kinds are worth it on which columns, measured in a sample of files."""
