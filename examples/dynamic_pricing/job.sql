-- What should a ride cost now? `penstock run examples/dynamic_pricing/job.sql`
--
-- Every five minutes and in each zone: how many passengers ask for a ride, how many drivers are free, and the factor by
-- which a ride is dearer where more ask than drive: at least 1, at most 3.

SET 'pipeline.name' = 'dynamic pricing';
SET 'execution.engine' = 'streaming';

CREATE TABLE requests (
  `zone`    STRING,
  passenger BIGINT,
  `at`      TIMESTAMP(3),
  WATERMARK FOR `at` AS `at` - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'examples/dynamic_pricing/data/requests.json', 'format' = 'json');

CREATE TABLE drivers (
  `zone` STRING,
  driver BIGINT,
  `at`   TIMESTAMP(3),
  WATERMARK FOR `at` AS `at` - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'examples/dynamic_pricing/data/drivers.json', 'format' = 'json');

CREATE TABLE prices (`zone` STRING, `until` TIMESTAMP(3), asked BIGINT, free BIGINT, factor DOUBLE) WITH ('connector' = 'print');

CREATE TEMPORARY VIEW wanted AS
SELECT `zone`, window_start, window_end, COUNT(DISTINCT passenger) AS n
FROM TABLE(TUMBLE(TABLE requests, DESCRIPTOR(`at`), INTERVAL '5' MINUTE))
GROUP BY `zone`, window_start, window_end;

CREATE TEMPORARY VIEW offered AS
SELECT `zone`, window_start, window_end, COUNT(DISTINCT driver) AS n
FROM TABLE(TUMBLE(TABLE drivers, DESCRIPTOR(`at`), INTERVAL '5' MINUTE))
GROUP BY `zone`, window_start, window_end;

INSERT INTO prices
SELECT
  w.`zone`, w.window_end, w.n, COALESCE(o.n, 0),
  FLOOR(100 * LEAST(3e0, GREATEST(1e0, CAST(w.n AS DOUBLE) / GREATEST(COALESCE(o.n, 0), 1)))) / 100
FROM wanted AS w
LEFT JOIN offered AS o
  ON w.`zone` = o.`zone` AND w.window_start = o.window_start AND w.window_end = o.window_end;
