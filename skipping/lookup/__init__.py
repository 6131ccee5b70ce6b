"""From a predicate to the files that are pruned for it. Imports nothing from `indexing`."""
