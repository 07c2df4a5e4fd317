"""A job that counts numbers into a stream and into files, and the proof that it counted each once."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from tests.deploy.clusters import Cluster, read_stream

#: Half a minute of rows: the job is still at work when a container of its is killed.
ROWS, ROWS_PER_SECOND = 90_000, 3_000

JOB = """
name: {name}
parallelism: 4
config: {{execution.engine: {engine}, execution.checkpointing.interval: 1 s}}
sql: |
  CREATE TABLE numbers (k BIGINT, n BIGINT, at_ TIMESTAMP(3),
                        WATERMARK FOR at_ AS at_ - INTERVAL '1' SECOND)
  WITH ('connector' = 'datagen', 'number-of-rows' = '{rows}', 'rows-per-second' = '{pace}',
        'fields.k.min' = '0', 'fields.k.max' = '9',
        'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{rows}');
  CREATE TABLE counts (k BIGINT, window_end TIMESTAMP(3), n BIGINT, total BIGINT)
  WITH ('connector' = 'nats', 'stream' = '{name}', 'subject' = '{name}.{{k}}', 'stream.create' = 'true',
        'format' = 'json', 'sink.delivery-guarantee' = 'exactly-once');
  CREATE TABLE files
  WITH ('connector' = 'filesystem', 'path' = 's3://penstock/out/{name}', 'format' = 'parquet')
  LIKE counts (EXCLUDING OPTIONS);
  CREATE VIEW counted AS SELECT k, window_end, COUNT(*) AS n, SUM(n) AS total
    FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(at_), INTERVAL '1' SECOND))
    GROUP BY k, window_start, window_end;
  BEGIN STATEMENT SET;
  INSERT INTO counts SELECT * FROM counted;
  INSERT INTO files SELECT * FROM counted;
  END;
"""


async def assert_exact(cluster: Cluster, name: str, rows: int) -> None:
    """Each number was counted once, in the stream and in the files."""
    published = await read_stream(cluster, name, f"{name}.*")
    files = cluster.files(f"out/{name}/").values()
    written = pa.concat_tables(pq.read_table(io.BytesIO(data)) for data in files).to_pylist()
    for results in (published, written):
        assert sum(row["n"] for row in results) == rows
        assert sum(row["total"] for row in results) == rows * (rows + 1) // 2
        assert len({(row["k"], row["window_end"]) for row in results}) == len(results)
