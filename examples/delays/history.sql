-- What train.py reads and writes.

CREATE TABLE history (
  origin     STRING,
  carrier    STRING,
  distance   BIGINT,                -- miles
  time_hour  TIMESTAMP(3),          -- scheduled hour, UTC
  dep_delay  DOUBLE                 -- minutes
) WITH (
  'connector' = 'filesystem',
  'path' = 'out/delays/history',
  'format' = 'parquet'
);

-- A logistic regression as rows: what each value of a feature adds to the log of the odds.
CREATE TABLE model (
  feature STRING,                   -- intercept, distance, origin, carrier, hour, weekday
  `value` STRING,
  weight  DOUBLE
) WITH (
  'connector' = 'filesystem',
  'path' = 'out/delays/model',
  'format' = 'parquet'
);
