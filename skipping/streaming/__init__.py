"""Maintain indexes with streams: one Structured Streaming query for each index.

The driver reads the table's log with the session's own catalog and credentials (`source`). Each
micro-batch calls the same `refresh` as CREATE and REFRESH. The store records which files are
indexed, so a checkpoint may be deleted at any time, and running a batch twice does no harm. A
`Maintainer` holds the index's lease while the query runs, and restarts the query when it fails.
"""
