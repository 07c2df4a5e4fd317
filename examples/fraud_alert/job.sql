-- Whoever steals a card tries it with some cents, and then takes much at once. `penstock run examples/fraud_alert/job.sql`
--
-- An alert for each payment of more than 500 whose account paid less than 1 just before, at most a minute ago.

SET 'pipeline.name' = 'fraud alert';
SET 'execution.engine' = 'streaming';

CREATE TABLE transactions (
  account BIGINT,
  amount  DOUBLE,
  `at`    TIMESTAMP(3),
  WATERMARK FOR `at` AS `at` - INTERVAL '5' SECOND
) WITH ('connector' = 'filesystem', 'path' = 'examples/fraud_alert/data/transactions.json', 'format' = 'json');

CREATE TABLE alerts (account BIGINT, tried DOUBLE, taken DOUBLE, `at` TIMESTAMP(3)) WITH ('connector' = 'print');

INSERT INTO alerts
SELECT account, tried, amount, `at`
FROM (
  SELECT
    account, amount, `at`,
    LAG(amount) OVER (PARTITION BY account ORDER BY `at`) AS tried,
    LAG(`at`) OVER (PARTITION BY account ORDER BY `at`)   AS tried_at
  FROM transactions
)
WHERE tried < 1 AND amount > 500 AND `at` <= tried_at + INTERVAL '1' MINUTE;
