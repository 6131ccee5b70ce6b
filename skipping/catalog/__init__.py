"""A proxy of an Iceberg REST catalog that plans scans with the index (`service.main`)."""
