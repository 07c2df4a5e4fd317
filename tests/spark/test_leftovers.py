"""Which Python processes of Spark are ended, and which are somebody's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from penstock.spark.leftovers import Hold, sweep
from penstock.spark.workers import workers

#: Says that it runs, so that its environment is its own already.
RUNS = "import sys; print(flush=True); sys.stdin.read()"


def daemon(session: str) -> subprocess.Popen[bytes]:
    """A child of this process, which stands for the server."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUNS],
        env={**os.environ, "SPARK_JOB_ARTIFACT_UUID": session},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_daemon_that_came_after_its_session_had_ended_goes(tmp_path: Path) -> None:
    """Spark starts one for a task that is just being cancelled, when the session's was ended."""
    server, told = os.getpid(), []
    client = SimpleNamespace(_session_id="mine", _user_id=None, _server_session_id="held")
    hold = Hold(tmp_path, "job", server, SimpleNamespace(client=client))
    theirs, stray = daemon("held"), daemon("over")
    try:
        assert sweep(tmp_path, "sc://localhost:1", server, told.append) == [stray.pid]
        assert stray.wait() < 0
        assert workers(server) == {theirs.pid: "held"}
        hold.release()
        assert sweep(tmp_path, "sc://localhost:1", server, told.append) == [theirs.pid]
        assert theirs.wait() < 0
        assert told == [], "no query was interrupted"
    finally:
        for process in (theirs, stray):
            process.kill()
            process.communicate()
