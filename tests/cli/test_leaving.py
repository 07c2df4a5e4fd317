"""Leaving a command by a signal, at moments at which the job could stay behind or the command hang."""

from __future__ import annotations

import http.server
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpcore
import pytest

from penstock.api import attached as attached_api
from penstock.api.client import ClusterClient
from penstock.cli import leaving
from penstock.cli.leaving import attended
from penstock.errors import ExternalError, PenstockError, SpecError

SPEC = {"name": "watched"}
LEFT = SystemExit(143)


class Cluster:
    """``accepted_after``: it knows a submitted job after so many questions; ``fails``: method → what it
    raises; ``state``: of the job once it is cancelled."""

    def __init__(
        self, accepted_after: int = 0, fails: dict[str, BaseException] | None = None, state: str = "CANCELED"
    ) -> None:
        self._unknown_for = accepted_after
        self._fails = fails or {}
        self._cancelled_state = state
        self.jobs: dict[str, str] = {}

    def _fail(self, method: str) -> None:
        if method in self._fails:
            raise self._fails[method]

    def submit(self, spec: dict[str, Any]) -> str:
        self.jobs[spec["job_id"]] = "RUNNING"
        self._fail("submit")
        return spec["job_id"]

    def job(self, job_id: str) -> dict[str, Any]:
        self._unknown_for -= 1
        if job_id not in self.jobs or self._unknown_for >= 0:
            unknown = PenstockError("no such job")
            unknown.code = "PS-NO-JOB"
            raise unknown
        return {"state": self.jobs[job_id]}

    def cancel(self, job_id: str) -> None:
        self._fail("cancel")
        self.jobs[job_id] = self._cancelled_state


def leave(job_id: str) -> None:
    raise LEFT


def run(cluster: Cluster, wait: Callable[[str], None] = leave) -> None:
    attended(cluster, SPEC, wait)  # type: ignore[arg-type]


@pytest.mark.parametrize("left", [LEFT, KeyboardInterrupt(), BrokenPipeError()])
def test_while_the_job_is_awaited(left: BaseException) -> None:
    def wait(job_id: str) -> None:
        raise left

    cluster = Cluster()
    with pytest.raises(type(left)):
        run(cluster, wait)
    assert [*cluster.jobs.values()] == ["CANCELED"]


@pytest.mark.parametrize("accepted_after", [0, 2])
def test_during_the_submission(accepted_after: int) -> None:
    cluster = Cluster(accepted_after, fails={"submit": LEFT})
    with pytest.raises(SystemExit):
        run(cluster)
    assert [*cluster.jobs.values()] == ["CANCELED"]


def test_a_submission_that_never_arrives_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attached_api, "WITHDRAW_S", 0.05)
    with pytest.raises(SystemExit):
        run(Cluster(10**9, fails={"submit": LEFT}))


def test_a_refused_submission_is_told_and_nothing_cancelled() -> None:
    cluster = Cluster(fails={"submit": SpecError("no such connector"), "cancel": AssertionError("why?")})
    with pytest.raises(SpecError):
        run(cluster)


def test_a_job_that_does_not_end_is_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(leaving, "CANCEL_S", 0.05)
    with pytest.raises(SystemExit):
        run(Cluster(state="CANCELLING"))
    assert "is being cancelled" in capsys.readouterr().err


def test_why_it_is_left_is_not_hidden_by_a_cluster_that_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run(Cluster(fails={"cancel": ExternalError("the cluster does not answer")}))
    assert left.value.code == 143
    assert "the cluster does not answer" in capsys.readouterr().err


FINALIZER = """
import os, signal, threading
from penstock.cli.signals import leave_on_signals

# Whoever started the tests in the background may have them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
leave_on_signals()

class Swallows:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        for _ in range(1000): pass

swallowing = Swallows()
del swallowing
threading.Event().wait()
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", -2)])
def test_a_signal_inside_of_a_finalizer_is_not_lost(name: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", FINALIZER.replace("{name}", name)], check=False)
    assert done.returncode == code


@pytest.fixture
def dispatcher() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"jobs": []}')

        def log_message(self, *_: Any) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_client_goes_on_after_a_signal_inside_of_its_connection_pool(
    dispatcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when it arrives right after the pool has taken its lock."""
    with ClusterClient(dispatcher) as client:

        def interrupted(pool: Any, request: Any) -> Any:
            pool._optional_thread_lock._lock.acquire()
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(httpcore.ConnectionPool, "handle_request", interrupted)
            with pytest.raises(KeyboardInterrupt):
                client.jobs()
        assert client.jobs() == []
