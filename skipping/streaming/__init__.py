"""Indexes that follow their tables: a Structured Streaming query for each, and who keeps it.

The driver lists the table's log, with the session's own catalog and credentials (`source`);
each micro-batch calls the `refresh` that CREATE and REFRESH call. What is done is in the store, so
a checkpoint may be deleted at any time, and a batch that is delivered twice does nothing twice. A
`maintainer` holds the index's lease while the query runs, and starts it again when it fails.
"""
