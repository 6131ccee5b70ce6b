"""Settings of a session and options of an index."""
