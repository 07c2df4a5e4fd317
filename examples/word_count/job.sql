-- How often does each word occur in a text? `penstock run examples/word_count/job.sql`

SET 'pipeline.name' = 'word count';
SET 'execution.engine' = 'streaming';
SET 'execution.runtime-mode' = 'BATCH';  -- one row for each word, when the text has ended

CREATE TABLE lines (line STRING) WITH (
  'connector' = 'filesystem',
  'path' = 'examples/word_count/data/lines.txt',
  'format' = 'raw'
);

CREATE TABLE counts (word STRING, n BIGINT) WITH ('connector' = 'print');

INSERT INTO counts
SELECT word, COUNT(*) AS n
FROM lines CROSS JOIN UNNEST(SPLIT(line, ' ')) AS words (word)
GROUP BY word;
