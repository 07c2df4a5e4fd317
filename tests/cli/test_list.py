"""``penstock list``: queries of clients that have ended are folded away."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.cli import inspect
from penstock.cli.inspect import list_jobs


def job(number: int, state: str, *, interactive: bool = False) -> dict[str, Any]:
    start = {"start-time": number, "duration": 1_500}
    return {"jid": f"j{number}", "name": f"n{number}", "state": state, "interactive": interactive, **start}


ALL = [
    job(1, "FAILED"),
    job(2, "RUNNING", interactive=True),
    job(3, "FINISHED", interactive=True),
    job(4, "FAILED", interactive=True),
]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    known: list[dict[str, Any]] = list(ALL)

    class Client:
        def __init__(self, url: str, *, patience_s: float) -> None: ...

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: object) -> None: ...

        def jobs(self) -> list[dict[str, Any]]:
            return known

    monkeypatch.setattr(inspect, "ClusterClient", Client)
    return known


@pytest.mark.parametrize(("every", "shown"), [(False, ["j2", "j1"]), (True, ["j4", "j3", "j2", "j1"])])
def test_queries_that_ended_are_left_out(
    cluster: Any, capsys: pytest.CaptureFixture[str], every: bool, shown: list[str]
) -> None:
    list_jobs("http://cluster", "json", every=every)
    assert [found["jid"] for found in json.loads(capsys.readouterr().out)] == shown
    list_jobs("http://cluster", "table", every=every)
    printed = capsys.readouterr().out
    assert [word for word in printed.split() if word in {"j1", "j2", "j3", "j4"}] == shown
    assert ("(2 queries that ended: penstock list --all)" in printed) is not every


def test_only_queries(cluster: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    cluster[:] = [job(3, "FINISHED", interactive=True)]
    list_jobs("http://cluster", "table")
    assert capsys.readouterr().out == "no jobs (1 query that ended: penstock list --all)\n"


def test_a_dispatcher_that_does_not_say_which_are_queries(
    cluster: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    cluster[:] = [{k: v for k, v in job(3, "FINISHED").items() if k != "interactive"}]
    list_jobs("http://cluster", "table")
    assert "j3" in capsys.readouterr().out
