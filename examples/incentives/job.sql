-- Which drivers earn a bonus? `penstock run examples/incentives/job.sql`
--
-- In each hour the two drivers with the most trips; of two with as many, who took more money.

SET 'pipeline.name' = 'incentives';
SET 'execution.engine' = 'streaming';

CREATE TABLE trips (
  driver STRING,
  fare   DOUBLE,
  `at`   TIMESTAMP(3),
  WATERMARK FOR `at` AS `at` - INTERVAL '30' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'examples/incentives/data/trips.json', 'format' = 'json');

CREATE TABLE bonuses (`hour` TIMESTAMP(3), place BIGINT, driver STRING, trips BIGINT, taken DOUBLE) WITH ('connector' = 'print');

INSERT INTO bonuses
SELECT window_start, place, driver, trips, ROUND(taken, 2)
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY trips DESC, taken DESC) AS place
  FROM (
    SELECT window_start, window_end, driver, COUNT(*) AS trips, SUM(fare) AS taken
    FROM TABLE(TUMBLE(TABLE trips, DESCRIPTOR(`at`), INTERVAL '1' HOUR))
    GROUP BY window_start, window_end, driver
  )
)
WHERE place <= 2;
