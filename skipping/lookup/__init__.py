"""From a predicate to the files that are pruned for it. Knows nothing of `build`."""
