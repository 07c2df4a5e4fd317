CREATE TABLE flights (
  tailnum STRING,                   -- the aircraft
  dest    STRING                    -- the airport it flew to
) WITH (
  'connector' = 'filesystem',
  'path' = 'out/fleets/flights',
  'format' = 'parquet'
);

CREATE TABLE components (
  node      STRING,                 -- 'aircraft N…' or 'airport …'
  component STRING                  -- the first of its nodes, by name
) WITH (
  'connector' = 'filesystem',
  'path' = 'out/fleets/components',
  'format' = 'parquet'
);
