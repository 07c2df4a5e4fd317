-- Orders of an old system are cleaned and sorted by country; lines that cannot be read are set aside, and none is lost.
-- `penstock run examples/orders_etl/job.sql`

SET 'pipeline.name' = 'orders etl';
SET 'execution.engine' = 'streaming';
SET 'table.exec.dead-letter.table' = 'unreadable';

CREATE TABLE orders (
  id       BIGINT,
  customer BIGINT,
  country  STRING,
  amount   DECIMAL(10, 2),
  `at`     TIMESTAMP(3)
) WITH (
  'connector' = 'filesystem',
  'path' = 'examples/orders_etl/data/orders.csv',
  'format' = 'csv',
  'on-error' = 'dead-letter'
);

CREATE TABLE cleaned (
  id       BIGINT,
  customer BIGINT,
  amount   DECIMAL(10, 2),
  `at`     TIMESTAMP(3),
  country  STRING
) PARTITIONED BY (country) WITH (
  'connector' = 'filesystem',
  'path' = 'out/orders_etl/cleaned',
  'format' = 'parquet'
);

CREATE TABLE unreadable (`position` STRING, reason STRING, record STRING) WITH ('connector' = 'print');

INSERT OVERWRITE cleaned
SELECT id, customer, amount, `at`, UPPER(TRIM(country)) AS country
FROM orders;
