"""Between Spark's JVM and Python: hooks, callbacks, messages, and who may send them."""
