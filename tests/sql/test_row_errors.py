"""Errors of rows say where in the user's text the expression stands, the expression, and the source of the row."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import RecordError
from penstock.sql.session import SqlSession
from penstock.testing import JobHarness

BIDS = (
    "CREATE TABLE bids (a BIGINT, s STRING) WITH ('connector' = 'datagen', 'number-of-rows' = '3',\n"
    "'fields.a.min' = '0', 'fields.a.max' = '0', 'fields.s.length' = '4');\n"
)
OUT = "CREATE TABLE o (k BIGINT, n INT) WITH ('connector' = 'blackhole');\n"

PLACES = {
    "a cast of the statement": (
        OUT + "INSERT INTO o\nSELECT a,\n  CAST(s AS INT) FROM bids",
        "line 6, column 8 of INSERT INTO o: CAST(s AS INT) (a row of 'Source: bids')",
    ),
    "a view": (
        OUT + "CREATE VIEW v AS SELECT a,\n  7 / a AS n FROM bids;\nINSERT INTO o SELECT a, CAST(n AS INT) FROM v",
        "line 5, column 3 of view 'v': (7 / a) (a row of 'Source: bids')",
    ),
    "what INSERT adds": (
        "CREATE TABLE o (d DECIMAL(3, 2)) WITH ('connector' = 'blackhole');\nINSERT INTO o SELECT 1 / a FROM bids",
        "line 4, column 22 of INSERT INTO o: (1 / a) (a row of 'Source: bids')",
    ),
    "a condition": ("SELECT s FROM bids WHERE 1 / a > 0", "line 3, column 26: (1 / a) (a row of 'Source: bids')"),
    "behind an aggregation": (
        "SELECT COUNT(*) / SUM(a) FROM bids",
        "line 3, column 8: (EXPR$0 / EXPR$1) (a row of 'Source: bids')",
    ),
    "behind a shuffle": (
        "SET 'parallelism.default' = '2'; SELECT COUNT(*) / SUM(a) FROM bids",
        "line 3, column 41: (EXPR$0 / EXPR$1)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(PLACES))
def test_an_error_of_a_row_names_its_place(name: str) -> None:
    text, place = PLACES[name]
    session = SqlSession({"parallelism.default": "1"})
    job = next(result.job for result in session.run_script(BIDS + text) if result.job is not None)
    with pytest.raises(RecordError) as caught:
        asyncio.run(_run(job.job_graph))
    assert caught.value.where == place


async def _run(graph: object) -> None:
    async with JobHarness(graph) as job:  # type: ignore[arg-type]
        await job.wait()
