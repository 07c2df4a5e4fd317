-- What is unusual: hours in which a carrier leaves an airport much later than it used to at
-- that time of day. Runs in the job of job.sql, on the same flights.

CREATE TABLE unusual (
  origin       STRING,
  carrier      STRING,
  window_start TIMESTAMP(3),
  departures   BIGINT,
  mean_delay   DOUBLE,
  usual_delay  DOUBLE,
  spread       DOUBLE
) WITH (
  'connector' = 'nats',
  'stream' = 'UNUSUAL',
  'subject' = 'unusual.{origin}',
  'stream.create' = 'true',
  'format' = 'json'
);

CREATE TABLE unusual_files WITH (
  'connector' = 'filesystem',
  'path' = 'out/flights/unusual',
  'format' = 'parquet'
) LIKE unusual (EXCLUDING OPTIONS);

CREATE TEMPORARY VIEW hours AS
SELECT
  origin, carrier, window_start,
  EXTRACT(HOUR FROM window_start) AS `hour`,
  COUNT(*)       AS departures,
  AVG(dep_delay) AS mean_delay,
  PROCTIME()     AS looked_up
FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1' HOUR))
GROUP BY origin, carrier, window_start, window_end;

CREATE TEMPORARY VIEW flagged AS
SELECT h.origin, h.carrier, h.window_start, h.departures, h.mean_delay, u.mean AS usual_delay, u.spread
FROM hours AS h
JOIN usual FOR SYSTEM_TIME AS OF h.looked_up AS u
  ON u.origin = h.origin AND u.carrier = h.carrier AND u.`hour` = h.`hour`
WHERE u.`month` IS NULL
  AND h.departures >= 3
  AND h.mean_delay > u.mean + 3 * u.spread;

INSERT INTO unusual SELECT * FROM flagged;
INSERT INTO unusual_files SELECT * FROM flagged;
