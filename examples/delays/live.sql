-- The flights of the last three months, as they leave, each with its chance of being late:
-- known from the schedule alone.

SET 'pipeline.name' = 'delays';
SET 'execution.runtime-mode' = 'STREAMING';
SET 'user.model' = 'out/delays/model';

CREATE FUNCTION late_probability AS 'score.LateProbability' LANGUAGE PYTHON;

CREATE TABLE flights (
  origin     STRING,
  carrier    STRING,
  distance   BIGINT,
  time_hour  TIMESTAMP(3),
  dep_delay  DOUBLE
) WITH (
  'connector' = 'nats',
  'stream' = 'FLIGHTS',
  'subject' = 'flights.EWR;flights.JFK;flights.LGA',
  'format' = 'json',
  'message.batch' = 'true',
  'scan.startup.mode' = 'earliest',
  'scan.bounded.mode' = 'marker'
);

CREATE TABLE scores (
  origin      STRING,
  carrier     STRING,
  time_hour   TIMESTAMP(3),
  late        BOOLEAN,
  probability DOUBLE
) WITH (
  'connector' = 'filesystem',
  'path' = 'out/delays/scores',
  'format' = 'parquet'
);

INSERT INTO scores
SELECT
  origin, carrier, time_hour,
  dep_delay > 15,
  late_probability(origin, carrier, EXTRACT(HOUR FROM time_hour), EXTRACT(DOW FROM time_hour), distance)
FROM flights;
