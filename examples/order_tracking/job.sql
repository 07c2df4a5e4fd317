-- Where is my order? The orders of a shop, as its database holds them, with what scanners of parcels report,
-- as a document for each order in a search server: the newest state, always.

SET 'pipeline.name' = 'order tracking';
SET 'execution.runtime-mode' = 'STREAMING';
SET 'execution.checkpointing.interval' = '1 s';
SET 'table.exec.join.unbounded-state' = 'allow';   -- all orders and the sums of all parcels are kept

-- The table as it is, and then every change of it.
CREATE TABLE orders (
  id       BIGINT,
  customer STRING,
  status   STRING,
  cents    BIGINT,
  PRIMARY KEY (id) NOT ENFORCED
) WITH (
  'connector' = 'postgres-cdc',
  'hostname' = 'localhost',
  'port' = '5432',
  'username' = 'penstock',
  'password' = 'secret:shop-password',
  'database-name' = 'shop',
  'schema-name' = 'public',
  'table-name' = 'orders',
  'slot.name' = 'order_tracking'
);

CREATE TABLE scans (
  order_id BIGINT,
  place    STRING,
  seen     TIMESTAMP(3)
) WITH (
  'connector' = 'kafka',
  'properties.bootstrap.servers' = 'localhost:9092',
  'topic' = 'scans',                -- the key of a message is the order's id
  'format' = 'json',
  'scan.startup.mode' = 'earliest-offset'
);

CREATE TABLE tracking (
  id       BIGINT,
  customer STRING,
  status   STRING,
  cents    BIGINT,
  scans    BIGINT,
  place    STRING,
  seen     TIMESTAMP(3),
  PRIMARY KEY (id) NOT ENFORCED     -- the id of the document
) WITH (
  'connector' = 'opensearch',
  'hosts' = 'http://localhost:9200',
  'index' = 'tracking'
);

CREATE TEMPORARY VIEW parcels AS
SELECT order_id, COUNT(*) AS scans, LAST_VALUE(place) AS place, MAX(seen) AS seen
FROM scans
GROUP BY order_id;

INSERT INTO tracking
SELECT o.id, o.customer, o.status, o.cents, COALESCE(p.scans, 0), p.place, p.seen
FROM orders AS o
LEFT JOIN parcels AS p ON p.order_id = o.id;
