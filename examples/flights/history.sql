-- What is usual: how late the flights of each airport and carrier leave, by hour of day and
-- by month. All inputs are bounded, so Penstock runs this half on Spark.

CREATE TABLE history (
  origin     STRING,
  carrier    STRING,
  time_hour  TIMESTAMP(3),          -- scheduled hour, UTC
  dep_delay  DOUBLE                 -- minutes
) WITH (
  'connector' = 'filesystem',
  'path' = 'out/flights/history',
  'format' = 'parquet'
);

CREATE TABLE usual (
  origin   STRING,
  carrier  STRING,
  `month`  BIGINT,                  -- NULL: of all months
  `hour`   BIGINT,                  -- of the day, UTC
  hours    BIGINT,                  -- how many hours of schedule were seen
  flights  BIGINT,
  mean     DOUBLE,                  -- of the hours' mean delays
  spread   DOUBLE                   -- their standard deviation
) WITH (
  'connector' = 'filesystem',
  'path' = 'out/flights/usual',
  'format' = 'parquet'
);

INSERT INTO usual
SELECT
  origin, carrier, `month`, `hour`,
  COUNT(*), SUM(flights), AVG(delay), STDDEV_SAMP(delay)
FROM (
  SELECT
    origin, carrier, time_hour,
    EXTRACT(MONTH FROM time_hour) AS `month`,
    EXTRACT(HOUR FROM time_hour)  AS `hour`,
    COUNT(*)                      AS flights,
    AVG(dep_delay)                AS delay
  FROM history
  GROUP BY origin, carrier, time_hour
)
GROUP BY GROUPING SETS ((origin, carrier, `month`, `hour`), (origin, carrier, `hour`));
