-- Flint's statements about skipping indexes: every form that its manual or its grammar has.

CREATE SKIPPING INDEX ON requests (day PARTITION, status VALUE_SET, took MIN_MAX, ip BLOOM_FILTER);

CREATE SKIPPING INDEX IF NOT EXISTS
ON spark_catalog.default.requests ( day PARTITION );

CREATE SKIPPING INDEX ON `myglue`.`default`.`requests` ( `day` PARTITION, `status` VALUE_SET );

CREATE SKIPPING INDEX ON requests ( status VALUE_SET(20) );

CREATE SKIPPING INDEX ON requests ( ip BLOOM_FILTER(20) );

CREATE SKIPPING INDEX ON requests ( ip BLOOM_FILTER(20, 0.01) );

CREATE SKIPPING INDEX ON requests ( ip BLOOM_FILTER(false) );

CREATE SKIPPING INDEX ON requests ( ip BLOOM_FILTER(false, 1000000, 0.01) );

CREATE SKIPPING INDEX ON requests ( ip BLOOM_FILTER(false, num_items=10000, fpp=0.03) );

CREATE SKIPPING INDEX ON requests ( status VALUE_SET(limit=100), ip BLOOM_FILTER(num_candidate=10) );

-- Nested columns, and the older way to write them
CREATE SKIPPING INDEX ON requests ( client.net.ip VALUE_SET, `client`.`port` MIN_MAX );

CREATE SKIPPING INDEX ON requests ( `client.net.ip` VALUE_SET, `client.port` MIN_MAX );

CREATE SKIPPING INDEX ON requests ( took MIN_MAX ) WHERE day > '2024-01-31 00:00:00';

CREATE SKIPPING INDEX ON requests ( took MIN_MAX )
WHERE day > '2024-01-31' AND (status = 404 OR status = 500)
WITH ( auto_refresh = false );

-- Every option that is documented
CREATE SKIPPING INDEX ON requests ( took MIN_MAX )
WITH (
  auto_refresh = true,
  scheduler_mode = 'external',
  refresh_interval = '30 Seconds',
  incremental_refresh = false,
  checkpoint_location = 's3://bucket/checkpoints/',
  watermark_delay = '2 Minutes',
  output_mode = 'complete',
  index_settings = '{"number_of_shards": 1, "number_of_replicas": 0}',
  index_mappings = '{ "_source": { "enabled": false } }',
  id_expression = "sha1(concat_ws('\0', day, status))",
  extra_options = '{"spark_catalog.default.requests": {"maxFilesPerTrigger": "5"}}'
);

-- A key may be a string, = may be == or left out
CREATE SKIPPING INDEX ON requests ( took MIN_MAX ) WITH ( 'auto_refresh' 'false', build == true );

REFRESH SKIPPING INDEX ON requests;

DESC SKIPPING INDEX ON requests;

DESCRIBE SKIPPING INDEX ON default.requests;

ALTER SKIPPING INDEX ON requests WITH ( auto_refresh = false );

ALTER SKIPPING INDEX
ON requests
WITH ( auto_refresh = true, incremental_refresh = false, scheduler_mode = 'internal' );

DROP SKIPPING INDEX ON requests;

VACUUM SKIPPING INDEX ON requests;

ANALYZE SKIPPING INDEX ON spark_catalog.default.requests;

SHOW FLINT INDEX IN spark_catalog;

SHOW FLINT INDEXES IN spark_catalog.default;

SHOW FLINT INDEX EXTENDED IN spark_catalog;

SHOW FLINT INDEXES EXTENDED IN spark_catalog.default;

RECOVER INDEX JOB flint_spark_catalog_default_requests_skipping_index;

RECOVER INDEX JOB `flint_spark_catalog_default_requests_skipping_index`;

-- The kinds and keywords in any case
create skipping index on requests ( took Min_Max, status value_set );
