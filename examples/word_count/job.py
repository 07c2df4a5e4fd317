"""The same with functions of Python. ``penstock run examples/word_count/job.py``"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.api import *


def words(row: Row) -> Iterator[tuple[str, int]]:
    for word in row.line.split(" "):
        yield word, 1


env = StreamExecutionEnvironment.get_execution_environment()
env.set_runtime_mode(RuntimeExecutionMode.BATCH)  # one row for each word, when the text has ended
env.execute_sql("""
    CREATE TABLE lines (line STRING) WITH (
      'connector' = 'filesystem',
      'path' = 'examples/word_count/data/lines.txt',
      'format' = 'raw'
    );

    CREATE TABLE counts (word STRING, n BIGINT) WITH ('connector' = 'print');
""")
counts = (
    env.from_table("lines")
    .flat_map(words, Types.ROW_NAMED(["word", "n"], [Types.STRING(), Types.LONG()]))
    .key_by("word")
    .sum("n")
)
counts.insert_into("counts")
env.execute("word count")
