"""Writes docs/engine-differences.md: ``python -m tests.golden.differences > docs/engine-differences.md``.

The lines about single cases come from the lists of exceptions that the tests use.
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
    _TESTS / "golden" / "recorded_exceptions.csv": "constants that Flink's planner folds",
}

_HEAD = """# Differences between engines

Penstock runs a query on its streaming engine or on Spark, and its SQL is Flink's. This page says what is compared, and lists
every answer that differs.

| I want to know … | go to |
|---|---|
| whether the engine changes my result | [Streaming engine and Spark](#streaming-engine-and-spark) |
| whether batch mode changes my result | [Batch and streaming mode](#batch-and-streaming-mode) |
| where an answer is not Flink's | [Recorded answers of Flink](#recorded-answers-of-flink) |

`python -m tests.golden.differences` writes this page from the lists that the tests use; a test compares the two.

## Streaming engine and Spark

In batch mode both engines must give the same rows. Tests assert that for

- {cases} golden cases (`tests/golden/cases`; {duckdb} of them are compared with DuckDB as well). They cover every kind of
  type, expression, aggregate, window, join, ranking, OVER frame, set operation, subquery, UNNEST, Python function and
  statement;
- all of Flink's recorded Nexmark queries (`tests/spark/test_nexmark.py`), without exception;
- Flink's recorded expressions, aggregates and queries (`tests/golden/test_recorded.py`);
- the 328,521 flights on a real cluster (`tests/e2e/test_main_job.py`): Spark over Parquet, the streaming engine over the
  replay with a watermark delay of 22 hours.

{exceptions}
Some results are not fixed on either engine, so no test compares them:

| what | why |
|---|---|
| the last digits of SUM, AVG, STDDEV, VAR of FLOAT and DOUBLE | addition depends on the order of rows; cases compare nine digits |
| the order of a result without ORDER BY | none is promised |
| which zero a GROUP BY of a FLOAT or DOUBLE shows, if 0.0 and -0.0 are among its rows | Both are one group on both engines. Its key is 0.0 on Spark, and the zero that came first on the streaming engine. |
| late rows | On Spark, and in mode BATCH, no row is late. In mode STREAMING a bounded source may have late rows, by its watermark. |
| CURRENT_TIMESTAMP, PROCTIME(), RAND(), windows and timers by processing time | They use the clock and the random numbers of the machine that computes them. |
| a process function whose timer reads what later rows change | On Spark the watermark follows each row at once; in a stream it follows by the table's delay. |
| what a broadcast rule itself emits | Once on Spark, where all keys share a partition; once for each subtask in a stream. |

## Batch and streaming mode

| query | batch, on either engine | streaming mode |
|---|---|---|
| an aggregate without GROUP BY over no row | one row (COUNT is 0) | no row, as in Flink: nothing is emitted before the first row |
| ORDER BY without LIMIT; OVER ordered by a column that is no time attribute | answered | refused over an unbounded input |

## Recorded answers of Flink

These recorded answers of Flink differ from Penstock's, on both engines.

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
