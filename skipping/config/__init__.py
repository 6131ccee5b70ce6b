"""Settings of a session and options of an index: what there is, and what is refused."""
