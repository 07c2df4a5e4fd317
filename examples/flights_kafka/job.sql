-- The board of examples/flights, from Kafka. Where it goes is the one word in the last statement:
-- board_topic (Kafka), board_lake (Iceberg) or board_database (PostgreSQL).

SET 'pipeline.name' = 'flights from Kafka';
SET 'execution.runtime-mode' = 'STREAMING';
SET 'execution.checkpointing.interval' = '2 s';
SET 'table.exec.source.idle-timeout' = '0 ms';  -- an airport that is silent is waited for

CREATE TABLE flights (
  origin     STRING,
  dest       STRING,
  carrier    STRING,
  flight     BIGINT,
  time_hour  TIMESTAMP(3),          -- scheduled hour, UTC
  `minute`   INT,                   -- scheduled minute
  dep_delay  DOUBLE,                -- minutes
  scheduled  AS TIMESTAMPADD(MINUTE, `minute`, time_hour),
  WATERMARK FOR scheduled AS scheduled - INTERVAL '22' HOUR   -- the longest delay of the year
) WITH (
  'connector' = 'kafka',
  'properties.bootstrap.servers' = 'localhost:9092',
  'properties.group.id' = 'board',
  'topic' = 'flights',              -- a partition, and a watermark, for each airport
  'format' = 'json',
  'scan.startup.mode' = 'earliest-offset'
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
  'connector' = 'kafka',
  'properties.bootstrap.servers' = 'localhost:9092',
  'properties.group.id' = 'board',
  'topic' = 'weather',
  'format' = 'json',
  'scan.startup.mode' = 'earliest-offset'
);

CREATE TABLE board_topic (
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
  'connector' = 'kafka',
  'properties.bootstrap.servers' = 'localhost:9092',
  'topic' = 'board',
  'key.format' = 'raw',
  'key.fields' = 'origin',
  'value.format' = 'json',
  'sink.delivery-guarantee' = 'exactly-once'
);

CREATE TABLE board_lake WITH (
  'connector' = 'iceberg',
  'catalog-type' = 'sql',
  'uri' = 'sqlite:////tmp/lake/catalog.db',
  'warehouse' = 'file:///tmp/lake',
  'catalog-database' = 'airports',
  'catalog-table' = 'board'
) LIKE board_topic (EXCLUDING OPTIONS);

CREATE TABLE board_database WITH (
  'connector' = 'jdbc',
  'url' = 'jdbc:postgresql://localhost:5432/airports',
  'username' = 'penstock',
  'password' = 'secret:airports-password',
  'table-name' = 'board',
  'sink.delivery-guarantee' = 'exactly-once'
) LIKE board_topic (EXCLUDING OPTIONS);

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

INSERT INTO board_topic SELECT * FROM delays;
