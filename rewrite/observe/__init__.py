"""Report which files queries skipped, and why they read the others: explain, history, metrics."""
