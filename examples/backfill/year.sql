-- How the airlines do this year: kept up to date flight by flight, and week by week.
-- The year until September lies in files, what follows is in a stream, which begins some weeks
-- before: the cut says which rows count where. The files are read on Spark; its state, with the
-- week that is not over yet, is what the stream goes on with.

SET 'execution.backfill.engine' = 'spark';
SET 'execution.checkpointing.interval' = '2 s';

CREATE TABLE flights (
  origin     STRING,
  carrier    STRING,
  time_hour  TIMESTAMP(3),          -- scheduled hour, UTC
  dep_delay  DOUBLE,                -- minutes
  -- A flight that leaves 20 hours late is out of its order by so much.
  WATERMARK FOR time_hour AS time_hour - INTERVAL '22' HOUR
) WITH (
  'connector' = 'hybrid',
  'history.connector' = 'filesystem',
  'history.path' = 'out/backfill/history',
  'history.format' = 'parquet',
  'live.connector' = 'nats',
  'live.stream' = 'FLIGHTS',
  'live.subject' = 'flights.EWR;flights.JFK;flights.LGA',
  'live.format' = 'json',
  'live.message.batch' = 'true',
  'live.scan.bounded.mode' = 'marker',
  'switch.column' = 'time_hour',
  'switch.at' = '2013-10-01 00:00:00'
);

CREATE TABLE carriers (
  carrier  STRING,
  flights  BIGINT,
  late     BIGINT,                  -- by more than a quarter of an hour
  worst    DOUBLE,
  PRIMARY KEY (carrier) NOT ENFORCED
) WITH (
  'connector' = 'jdbc',
  'url' = 'jdbc:sqlite:out/backfill/year.db',
  'table-name' = 'carriers'
);

CREATE TABLE weeks (
  week     TIMESTAMP(3),
  origin   STRING,
  flights  BIGINT,
  late     BIGINT
) WITH (
  'connector' = 'filesystem',
  'path' = 'out/backfill/weeks',
  'format' = 'parquet'
);

BEGIN STATEMENT SET;

INSERT INTO carriers
SELECT carrier, COUNT(*), COUNT(*) FILTER (WHERE dep_delay > 15), MAX(dep_delay)
FROM flights
GROUP BY carrier;

INSERT INTO weeks
SELECT window_start, origin, COUNT(*), COUNT(*) FILTER (WHERE dep_delay > 15)
FROM TABLE(TUMBLE(TABLE flights, DESCRIPTOR(time_hour), INTERVAL '7' DAY))
GROUP BY window_start, window_end, origin;

END;
