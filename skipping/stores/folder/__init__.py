"""The folder store: immutable files and a log of numbered commits, on disk or object storage."""
