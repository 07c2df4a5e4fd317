-- Which machines are suddenly too warm? `penstock run examples/anomalies/job.sql`
--
-- A temperature is compared with the twenty before it and itself: one that is four standard deviations above the mean of all is an anomaly.

SET 'pipeline.name' = 'anomalies';
SET 'execution.engine' = 'streaming';

CREATE TABLE readings (
  machine STRING,
  celsius DOUBLE,
  `at`    TIMESTAMP(3),
  WATERMARK FOR `at` AS `at` - INTERVAL '1' MINUTE
) WITH ('connector' = 'filesystem', 'path' = 'examples/anomalies/data/readings.json', 'format' = 'json');

CREATE TABLE anomalies (machine STRING, celsius DOUBLE, usual DOUBLE, `at` TIMESTAMP(3)) WITH ('connector' = 'print');

INSERT INTO anomalies
SELECT machine, celsius, ROUND(mean, 2), `at`
FROM (
  SELECT machine, celsius, `at`, COUNT(*) OVER w AS n, AVG(celsius) OVER w AS mean, STDDEV_POP(celsius) OVER w AS deviation
  FROM readings
  WINDOW w AS (PARTITION BY machine ORDER BY `at` ROWS BETWEEN 20 PRECEDING AND CURRENT ROW)
)
WHERE n = 21 AND celsius > mean + 4 * deviation;
