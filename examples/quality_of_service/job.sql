-- Which cells of a network serve badly? `penstock run examples/quality_of_service/job.sql`
--
-- In each minute and cell: the latency that 95 of 100 answers keep, and the share of lost packets. A minute with more than
-- 200 ms, or more than a tenth lost, is bad.

SET 'pipeline.name' = 'quality of service';
SET 'execution.engine' = 'streaming';

CREATE TABLE pings (
  cell       STRING,
  latency_ms DOUBLE,
  lost       BOOLEAN,
  `at`       TIMESTAMP(3),
  WATERMARK FOR `at` AS `at` - INTERVAL '10' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'examples/quality_of_service/data/pings.json', 'format' = 'json');

CREATE TABLE bad_minutes (cell STRING, `minute` TIMESTAMP(3), p95_ms DOUBLE, lost DOUBLE) WITH ('connector' = 'print');

INSERT INTO bad_minutes
SELECT cell, window_start, ROUND(p95, 1), ROUND(lost, 3)
FROM (
  SELECT
    cell, window_start,
    PERCENTILE(latency_ms, 0.95)       AS p95,
    AVG(CASE WHEN lost THEN 1e0 ELSE 0e0 END) AS lost
  FROM TABLE(TUMBLE(TABLE pings, DESCRIPTOR(`at`), INTERVAL '1' MINUTE))
  GROUP BY cell, window_start, window_end
)
WHERE p95 > 200 OR lost > 0.1;
