CREATE TABLE sizes (
  component STRING,
  aircraft  BIGINT,
  airports  BIGINT
) WITH (
  'connector' = 'filesystem',
  'path' = 'out/fleets/sizes',
  'format' = 'parquet'
);

INSERT INTO sizes
SELECT
  component,
  COUNT(*) FILTER (WHERE node LIKE 'aircraft%'),
  COUNT(*) FILTER (WHERE node LIKE 'airport%')
FROM components
GROUP BY component;
