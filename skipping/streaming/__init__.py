"""Streams that maintain indexes: one Structured Streaming query for each.

The driver lists the table's log with the session's own catalog and credentials (`source`). Each
micro-batch calls the same `refresh` as CREATE and REFRESH. The store records what is done, so a
checkpoint may be deleted at any time, and a batch that runs twice has no effect. A `maintainer`
holds the index's lease while the query runs, and restarts the query when it fails.
"""
