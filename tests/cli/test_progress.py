"""The line that says how a job goes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli.jobs import progress_line

SPARK = {"tasks": 8, "tasks-completed": 3, "tasks-active": 2, "tasks-failed": 0}


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, "flights: RUNNING 12 s, 0 records"),
        ({"spark": SPARK}, "flights: RUNNING 12 s on Spark: 3 of 8 tasks, 2 run"),
        (
            {"spark": SPARK, "phase": "backfilling on Spark"},
            "flights: RUNNING 12 s backfilling on Spark: 3 of 8 tasks, 2 run",
        ),
        (
            {"phase": "restored from the backfill on Spark"},
            "flights: RUNNING 12 s, 0 records (restored from the backfill on Spark)",
        ),
    ],
)
def test_where_the_rows_come_from(more: dict[str, Any], line: str) -> None:
    assert progress_line({"state": "RUNNING", "vertices": [], **more}, "flights", 12.0) == line
