"""Connect Spark's JVM with Python: hooks, callbacks, messages and their authentication."""
