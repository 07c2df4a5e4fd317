"""docs/engine-differences.md: ``python -m tests.golden.differences > docs/engine-differences.md``.

What is said of single cases comes from the lists that the tests hold the engines to.
"""

from __future__ import annotations

import csv
from pathlib import Path

from tests.golden.case import cases

_TESTS = Path(__file__).parents[1]
#: List of exceptions → what it is held against.
LISTS = {
    _TESTS / "functions" / "flink_exceptions.csv": "expressions",
    _TESTS / "sql" / "flink_exceptions.csv": "aggregates, set operations, ordered queries",
    _TESTS / "golden" / "recorded_exceptions.csv": "what the planner folds or never reaches",
}

_HEAD = """# Where engines differ

Written by `python -m tests.golden.differences`; a test holds it to the lists of the tests.

## Between the streaming engine and Spark, in batch

The same rows are asserted, on both engines, for

- {cases} golden cases (`tests/golden/cases`, {duckdb} of them against DuckDB as well): every kind of type, expression,
  aggregate, window, join, ranking, OVER frame, set operation, subquery, UNNEST, Python function and statement;
- Flink's recorded Nexmark queries (`tests/spark/test_nexmark.py`), all of them as recorded, without exception;
- Flink's recorded expressions, aggregates and queries (`tests/golden/test_recorded.py`);
- the flights, all 328,521 of them, on the real cluster (`tests/e2e/test_main_job.py`): Spark over Parquet, the streaming engine
  over the replay with a watermark delay of 22 hours.

{exceptions}
What no case can hold, because it is not fixed on either engine:

| what | why |
|---|---|
| SUM, AVG, STDDEV, VAR of FLOAT and DOUBLE in the last digits | addition depends on the order of rows; cases compare nine digits |
| order of a result without ORDER BY | none is promised |
| which zero GROUP BY of a FLOAT or DOUBLE shows, where 0.0 and -0.0 are among its rows | they are one group on both; its key is 0.0 on Spark, and on the streaming engine the zero that came first |
| late rows | on Spark, and in mode BATCH, nothing is late; in mode STREAMING a bounded source's rows may be, by its watermark |
| CURRENT_TIMESTAMP, PROCTIME(), RAND(), windows and timers by processing time | by the clock and the chance of whoever computes them |
| a process function that reads, in a timer, what later rows would change | the watermark follows the rows at once on Spark, and by the table's delay in a stream |
| what a broadcast rule itself emits | once on Spark, where all keys share a partition; once a subtask in a stream |

## Between batch and streaming mode

| query | batch, on either engine | streaming mode |
|---|---|---|
| an aggregate without GROUP BY over no row | one row (COUNT is 0) | none, as in Flink: nothing comes before the first row |
| ORDER BY without LIMIT; OVER by what is no time | answered | refused over an unbounded input |

## From Flink's recorded answers, on both engines

"""


def page() -> str:
    known = cases().values()
    listed = [
        f"| `{c.name}` | {engine} | {reason} |" for c in known for engine, reason in c.exceptions.items()
    ]
    if listed:
        table = "\n".join(["Exceptions:", "", "| case | engine | reason |", "|---|---|---|", *listed, ""])
    else:
        table = "There is no exception among the golden cases.\n"
    duckdb = sum(c.reference == "duckdb" for c in known)
    parts = [_HEAD.format(cases=len(known), duckdb=duckdb, exceptions=table)]
    for path, what in LISTS.items():
        with path.open(newline="", encoding="utf-8") as file:
            rows = [f"| {r['id']} | {_cell(r['reason'])} |" for r in csv.DictReader(file)]
        name = path.relative_to(_TESTS.parent)
        parts.append("\n".join([f"`{name}`: {what}", "", "| case | reason |", "|---|---|", *rows, "", ""]))
    return "".join(parts).rstrip("\n") + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
