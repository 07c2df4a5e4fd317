"""What ``penstock info JOB`` says."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli import inspect


class Client:
    def __init__(self, url: str, **more: Any) -> None: ...
    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None: ...
    def jobs(self) -> list[dict[str, Any]]:
        return [{"jid": "4f1c"}]

    def job(self, job_id: str) -> dict[str, Any]:
        return {
            "name": "sums", "jid": job_id, "state": "RUNNING", "start-time": 0, "vertices": [],
            "spark": {"starting": 1},
        }  # fmt: skip

    def checkpoints(self, job_id: str) -> dict[str, Any]:
        return {"counts": {"completed": 2}}

    def exceptions(self, job_id: str) -> dict[str, Any]:
        entries = [
            {"attempt": 3, "notRestarted": "fixed-delay allows 2 restarts", "restoredInstead": None},
            {"attempt": 2, "notRestarted": None, "restoredInstead": "checkpoint 7 cannot be read"},
            {"attempt": 1, "notRestarted": None, "restoredInstead": None},
        ]
        return {"root-exception": "a disk is lost", "exceptionHistory": {"entries": entries}}


def test_a_job_with_what_was_decided_after_its_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inspect, "ClusterClient", Client)
    inspect.show_job("http://c", "4f", "table")
    said = capsys.readouterr().out
    assert "waits: Spark starts" in said
    assert said.endswith(
        "last failure:\na disk is lost\n"
        "not restarted after attempt 3: fixed-delay allows 2 restarts\n"
        "restored after attempt 2: checkpoint 7 cannot be read\n"
    )
