-- The table of the board in PostgreSQL: psql -d airports -f database.sql
CREATE TABLE board (
  origin       text,
  window_start timestamp(3),
  window_end   timestamp(3),
  departures   bigint,
  mean_delay   double precision,
  worst_delay  double precision,
  temp         double precision,
  wind_speed   double precision,
  precip       double precision,
  visib        double precision
);
