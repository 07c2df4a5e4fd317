"""``penstock why``: the lines about a job, and its exit code."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli import why

WELL = {"name": "sums", "jid": "4f1c", "state": "RUNNING", "severity": None, "summary": "The job runs well.", "findings": []}  # fmt: skip
SLOW = {
    "name": "joins", "jid": "5a2b", "state": "RUNNING", "severity": "warning", "summary": "It is slow.",
    "findings": [
        {"severity": "warning", "title": "It is slow.", "since": None, "causes": ["It is busy."], "next-step": "Raise it."}
    ],
}  # fmt: skip


class Client:
    def __init__(self, url: str, **more: Any) -> None: ...
    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None: ...
    def jobs(self) -> list[dict[str, Any]]:
        return [{"jid": v["jid"]} for v in (WELL, SLOW)]

    def verdict(self, job_id: str) -> dict[str, Any]:
        return {v["jid"]: v for v in (WELL, SLOW)}[job_id]

    def verdicts(self) -> list[dict[str, Any]]:
        return [WELL, SLOW]


@pytest.mark.parametrize(
    ("start", "code", "said"),
    [
        ("4f", 0, "sums  4f1c  RUNNING\n  ok    The job runs well.\n"),
        (
            "5a", 3,
            "joins  5a2b  RUNNING\n  warn  It is slow.\n        because: It is busy.\n        do:      Raise it.\n",
        ),
    ],
)  # fmt: skip
def test_one_job(
    start, code, said, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(why, "ClusterClient", Client)
    assert why.show_why("http://c", start, "text") == code
    assert capsys.readouterr().out == said


def test_all_jobs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(why, "ClusterClient", Client)
    assert why.show_why("http://c", None, "text") == 3
    assert capsys.readouterr().out.count("RUNNING") == 2
