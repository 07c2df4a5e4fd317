-- A version that asks another question of the same state: it is refused.

SET 'pipeline.name' = 'sales';
SET 'execution.runtime-mode' = 'STREAMING';  -- the orders never end in practice
SET 'execution.checkpointing.interval' = '1 s';

CREATE TABLE orders (
  id     BIGINT,
  cents  BIGINT,
  region AS CAST(CASE MOD(id, 3) WHEN 0 THEN 'north' WHEN 1 THEN 'south' ELSE 'west' END AS STRING)
) WITH (
  'connector' = 'datagen',
  'rows-per-second' = '300',
  'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '1000000000',
  'fields.cents.min' = '100', 'fields.cents.max' = '9900'
);

CREATE TABLE totals (region STRING, orders BIGINT, cents BIGINT, PRIMARY KEY (region) NOT ENFORCED)
WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:out/upgrade/sales.db', 'table-name' = 'totals');

INSERT INTO totals
SELECT region, COUNT(*), SUM(cents) FROM orders WHERE cents > 500 GROUP BY region;
