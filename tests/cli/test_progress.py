"""The line that says how a job goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.cli.jobs import follow_job, progress_line

SPARK = {"tasks": 8, "tasks-completed": 3, "tasks-active": 2, "tasks-failed": 0}


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, "flights: RUNNING 12 s, 0 records"),
        ({"spark": SPARK}, "flights: RUNNING 12 s on Spark: 3 of 8 tasks, 2 run"),
        (
            {"spark": {**SPARK, "starting": 1}},
            "flights: RUNNING 12 s on Spark: Spark starts, or is being connected to",
        ),
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


class Client:
    """A cluster whose job goes through these states."""

    url = "http://penstock"

    def __init__(self, states: list[tuple[int, str]], errors: dict[int, str]) -> None:
        self._jobs = [{"attempt": n, "state": state, "vertices": []} for n, state in states]
        self._errors = errors
        self._attempt = 0
        self.asked = 0

    def wait(self, job_id: str, *, on_progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        for job in self._jobs:
            # A failure is known with the state that follows from it.
            self._attempt = job["attempt"] - (job["state"] != "RESTARTING")
            on_progress(job)
        return job

    def exceptions(self, job_id: str) -> dict[str, Any]:
        self.asked += 1
        entries = [{"attempt": n, "stacktrace": e} for n, e in self._errors.items() if n <= self._attempt]
        return {"exceptionHistory": {"entries": entries[::-1]}}

    def accumulators(self, job_id: str) -> dict[str, int]:
        return {}


@pytest.mark.parametrize(
    ("states", "errors", "said", "asked"),
    [
        ([(1, "CREATED"), (1, "RUNNING"), (1, "RUNNING"), (1, "FINISHED")], {}, [], 0),
        (
            [(1, "RUNNING"), (1, "RESTARTING"), (1, "RESTARTING"), (2, "RUNNING"), (2, "FINISHED")],
            {1: "Traceback\nlost a disk"},
            ["flights: attempt 1 failed, the job begins anew:", "  Traceback", "  lost a disk"],
            2,
        ),
        (
            # A restart so quick that no look fell into it; the last error is whoever's waits for the job.
            [(1, "RUNNING"), (2, "RUNNING"), (3, "RUNNING"), (3, "FAILED")],
            {1: "no", 2: "no", 3: "no"},
            [
                "flights: attempt 1 failed, the job begins anew:",
                "  no",
                "flights: attempt 2 failed, the job begins anew: the same error",
            ],
            2,
        ),
    ],
)
def test_failed_attempts_are_told_as_they_happen(
    states: list[tuple[int, str]],
    errors: dict[int, str],
    said: list[str],
    asked: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = Client(states, errors)
    follow_job(client, "j", "flights")  # type: ignore[arg-type]
    assert capsys.readouterr().err.splitlines() == said
    assert client.asked == asked
