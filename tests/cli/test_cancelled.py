"""A job that is cancelled while the command line waits for it: by somebody else, or by Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.sql import Runner
from penstock.errors import ExternalError

SCRIPT = """
CREATE TABLE a (x INT) WITH ('connector' = 'datagen', 'number-of-rows' = '1');
CREATE TABLE b (x INT) WITH ('connector' = 'blackhole');
INSERT INTO b SELECT x FROM a;
"""


class Cluster:
    """Its one job runs until it is cancelled; ``interrupted``: Ctrl-C comes while it is awaited."""

    url = "http://penstock"

    def __init__(self, *, interrupted: bool) -> None:
        self._interrupted = interrupted
        self._state = "RUNNING"

    def submit(self, spec: dict[str, Any]) -> str:
        return str(spec["job_id"])

    def job(self, job_id: str) -> dict[str, Any]:
        return {"state": self._state, "duration": 5, "attempt": 1, "vertices": []}

    def cancel(self, job_id: str) -> None:
        self._state = "CANCELED"

    def wait(self, job_id: str, *, on_progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        if self._interrupted:
            raise KeyboardInterrupt
        self.cancel(job_id)
        return self.job(job_id)

    def accumulators(self, job_id: str) -> dict[str, int]:
        return {}


def test_by_somebody_else_is_an_error() -> None:
    runner = Runner(SimpleNamespace(client=Cluster(interrupted=False), defaults=dict), {}, "table")  # type: ignore[arg-type]
    with pytest.raises(ExternalError, match=r"job \w+ \(.*\) was cancelled"):
        runner.run_script(SCRIPT, "-e")


def test_by_hand_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(interrupted=True)
    runner = Runner(SimpleNamespace(client=cluster, defaults=dict), {}, "table")  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        runner.run_script(SCRIPT, "-e")
    said = capsys.readouterr().err
    assert "cancelling job " in said
    assert said.rstrip().endswith(": canceled]")
