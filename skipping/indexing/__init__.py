"""From a table's files to the entries of its index. Knows nothing of `lookup`."""
