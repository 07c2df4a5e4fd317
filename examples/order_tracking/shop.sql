-- The shop's database: psql -d shop -f shop.sql
CREATE TABLE orders (
  id       bigint PRIMARY KEY,
  customer text NOT NULL,
  status   text NOT NULL,
  cents    bigint NOT NULL
);
ALTER TABLE orders REPLICA IDENTITY FULL;   -- updates tell the old row, too
INSERT INTO orders
  SELECT i, 'customer ' || i % 17, 'paid', 500 + i * 7919 % 20000 FROM generate_series(1, 200) AS i;
