"""Define and parse the settings of a session and the options of an index."""
