"""From a table's files to the entries of its index. Imports nothing from `lookup`."""
