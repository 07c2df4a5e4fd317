-- How busy, and how late, is each New York airport, and what is the weather there?
--
-- Flights arrive in the order in which they left; event time is the *scheduled*
-- departure, so the stream is really out of order. Every quarter of an hour, for the
-- last hour: departures, mean and worst delay per airport, with that hour's weather.

SET 'pipeline.name' = 'flights';
SET 'execution.runtime-mode' = 'STREAMING';  -- the replay is live, though it ends
SET 'table.exec.late-data.table' = 'late_flights';

CREATE TABLE flights (
  origin     STRING,
  dest       STRING,
  carrier    STRING,
  flight     BIGINT,
  time_hour  TIMESTAMP(3),          -- scheduled hour, UTC
  `minute`   INT,                   -- scheduled minute
  dep_delay  DOUBLE,                -- minutes
  scheduled  AS TIMESTAMPADD(MINUTE, `minute`, time_hour),
  WATERMARK FOR scheduled AS scheduled - INTERVAL '3' HOUR
) WITH (
  'connector' = 'nats',
  'stream' = 'FLIGHTS',
  'subject' = 'flights.EWR;flights.JFK;flights.LGA',   -- a split, and a watermark, each
  'format' = 'json',
  'message.batch' = 'true',
  'scan.startup.mode' = 'earliest',
  'scan.bounded.mode' = 'marker'
);

CREATE TABLE weather (
  origin     STRING,
  time_hour  TIMESTAMP(3),
  temp       DOUBLE,                -- degrees Fahrenheit
  wind_speed DOUBLE,                -- miles an hour
  precip     DOUBLE,                -- inches
  visib      DOUBLE,                -- miles
  WATERMARK FOR time_hour AS time_hour - INTERVAL '1' HOUR
) WITH (
  'connector' = 'nats',
  'stream' = 'WEATHER',
  'subject' = 'weather.EWR;weather.JFK;weather.LGA',
  'format' = 'json',
  'message.batch' = 'true',
  'scan.startup.mode' = 'earliest',
  'scan.bounded.mode' = 'marker'
);

CREATE TABLE board (
  origin       STRING,
  window_start TIMESTAMP(3),
  window_end   TIMESTAMP(3),
  departures   BIGINT,
  mean_delay   DOUBLE,
  worst_delay  DOUBLE,
  temp         DOUBLE,
  wind_speed   DOUBLE,
  precip       DOUBLE,
  visib        DOUBLE
) WITH (
  'connector' = 'nats',
  'stream' = 'BOARD',
  'subject' = 'board.{origin}',
  'stream.create' = 'true',
  'format' = 'json'
);

CREATE TABLE board_files WITH (
  'connector' = 'filesystem',
  'path' = 'out/flights/board',
  'format' = 'parquet'
) LIKE board (EXCLUDING OPTIONS);

CREATE TABLE late_flights (
  origin     STRING,
  dest       STRING,
  carrier    STRING,
  flight     BIGINT,
  scheduled  TIMESTAMP(3),
  dep_delay  DOUBLE
) WITH (
  'connector' = 'filesystem',
  'path' = 'out/flights/late',
  'format' = 'parquet'
);

CREATE TEMPORARY VIEW departures AS
SELECT
  origin, window_start, window_end, window_time,
  COUNT(*)       AS departures,
  AVG(dep_delay) AS mean_delay,
  MAX(dep_delay) AS worst_delay
FROM TABLE(HOP(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '15' MINUTE, INTERVAL '1' HOUR))
GROUP BY origin, window_start, window_end, window_time;

CREATE TEMPORARY VIEW delays AS
SELECT
  d.origin, d.window_start, d.window_end, d.departures, d.mean_delay, d.worst_delay,
  w.temp, w.wind_speed, w.precip, w.visib
FROM departures AS d
LEFT JOIN weather AS w
  ON  w.origin = d.origin
  AND w.time_hour = FLOOR(d.window_start TO HOUR)
  AND w.time_hour BETWEEN d.window_time - INTERVAL '2' HOUR AND d.window_time;

EXECUTE STATEMENT SET
BEGIN
  INSERT INTO board SELECT * FROM delays;
  INSERT INTO board_files SELECT * FROM delays;
END;
