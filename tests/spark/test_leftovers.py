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
    theirs, other = daemon("held"), daemon("a session of Spark's own")
    try:
        assert sweep(tmp_path, "sc://localhost:1", server, told.append) == []
        hold.release()
        assert sweep(tmp_path, "sc://localhost:1", server + 1, told.append) == [], "of another server"
        hold = Hold(tmp_path, "job", server, SimpleNamespace(client=client))
        hold.release()
        assert sweep(tmp_path, "sc://localhost:1", server, told.append) == [theirs.pid]
        assert theirs.wait() < 0
        assert workers(server) == {other.pid: "a session of Spark's own"}, "as of a streaming query"
        assert told == [], "no query was interrupted"
        [over] = (tmp_path / "sessions").iterdir()
        os.utime(over, (0, 0))
        assert sweep(tmp_path, "sc://localhost:1", server, told.append) == []
        assert not list((tmp_path / "sessions").iterdir()), "it is not remembered for ever"
    finally:
        for process in (theirs, other):
            process.kill()
            process.communicate()
