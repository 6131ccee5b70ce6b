"""Report what queries skipped, and why not more: explanations, history, metrics."""
