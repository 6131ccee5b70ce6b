"""Parse skipping-index statements to immutable values; nothing is resolved or run."""
