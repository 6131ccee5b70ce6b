"""From a predicate to the files that are disproved for it. Knows nothing of `build`."""
