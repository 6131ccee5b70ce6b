"""Run skipping-index statements, and return their results as rows."""
