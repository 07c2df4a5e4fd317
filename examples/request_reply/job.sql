-- A service that answers requests over NATS: deposits are added to an account, and the answer is its balance.
-- `python -m examples.request_reply` starts it and asks.

SET 'pipeline.name' = 'accounts';
SET 'execution.checkpointing.interval' = '1 s';

CREATE TABLE deposits (
  account STRING,
  cents   BIGINT,
  reply   STRING METADATA FROM 'reply-to' VIRTUAL,   -- where the sender waits for the answer
  at_once AS PROCTIME()
) WITH (
  'connector' = 'nats-core',
  'subject' = 'accounts.deposit',
  'format' = 'json',
  'on-error' = 'dead-letter'
);

CREATE TABLE answers (
  account STRING,
  balance BIGINT,
  subject STRING METADATA                            -- the subject of the answer
) WITH (
  'connector' = 'nats-core',
  'subject' = 'accounts.unasked',                    -- where no reply is asked for
  'format' = 'json'
);

INSERT INTO answers
SELECT account, SUM(cents) OVER (PARTITION BY account ORDER BY at_once), reply
FROM deposits;
