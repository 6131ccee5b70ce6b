"""The store for production: one OpenSearch cluster."""
