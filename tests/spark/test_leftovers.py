"""Which Python processes of Spark are ended, and which are somebody's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from penstock.spark.leftovers import Hold, note_clone, sweep
from penstock.spark.workers import workers

#: Says that it runs, so that its environment is its own already.
RUNS = "import sys; print(flush=True); sys.stdin.read()"

#: Spark's client takes no other form of a session's id.
MINE = "0b3f7c52-5c0e-4e0f-9a52-0d7a3f4f0c11"


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


def held(folder: Path, session: str, server_session: str) -> Hold:
    client = SimpleNamespace(_session_id=session, _user_id=None, _server_session_id=server_session)
    return Hold(folder, "job", os.getpid(), SimpleNamespace(client=client))


def test_a_daemon_that_came_after_its_session_had_ended_goes(tmp_path: Path) -> None:
    """Spark starts one for a task that is just being cancelled, when the session's was ended."""
    server, told = os.getpid(), []
    live = held(tmp_path, "another", "another's")
    hold = held(tmp_path, "mine", "held")
    theirs, other = daemon("held"), daemon("a session of Spark's own")
    try:
        assert sweep(tmp_path, "sc://localhost:1", server, told.append) == []
        hold.release()
        assert sweep(tmp_path, "sc://localhost:1", server + 1, told.append) == [], "of another server"
        hold = held(tmp_path, "mine", "held")
        hold.release()
        assert sweep(tmp_path, "sc://localhost:1", server, told.append) == [theirs.pid]
        assert theirs.wait() < 0
        assert workers(server) == {other.pid: "a session of Spark's own"}, (
            "which may be of use to a live session"
        )
        assert told == [], "no query was interrupted"
        live.release()
        for over in (tmp_path / "sessions").glob("*.over"):
            os.utime(over, (0, 0))
        assert sweep(tmp_path, "sc://localhost:1", server, told.append) == [other.pid], "no session is live"
        assert not list((tmp_path / "sessions").iterdir()), "it is not remembered for ever"
    finally:
        end(theirs, other)


def test_the_daemons_of_a_streaming_query_go_with_its_session(tmp_path: Path) -> None:
    """Spark clones the session for the query. Another session that is live keeps what nobody has noted."""
    server, told = os.getpid(), []
    live = held(tmp_path, "another", "another's")
    hold = held(tmp_path, "mine", "mine's")
    for _ in range(2):  # one query may have several writers
        note_clone(hold.clones, "a clone")
    theirs, others, shared = daemon("a clone"), daemon("another's"), daemon("default")
    try:
        assert sweep(tmp_path, "sc://localhost:1", server, told.append) == []
        assert hold.sessions() == {"mine's", "a clone"}
        hold.release()
        assert sweep(tmp_path, "sc://localhost:1", server, told.append) == [theirs.pid]
        assert set(workers(server)) == {others.pid, shared.pid}
        live.release()
        assert set(sweep(tmp_path, "sc://localhost:1", server, told.append)) == {others.pid, shared.pid}
    finally:
        end(theirs, others, shared)


def test_what_a_killed_driver_cloned_is_known(tmp_path: Path) -> None:
    server, told = os.getpid(), []
    live = held(tmp_path, "another", "another's")
    hold = held(tmp_path, MINE, "mine's")
    note_clone(hold.clones, "a clone")
    theirs, shared = daemon("a clone"), daemon("default")
    try:
        os.close(hold._file)  # as the kernel does when the driver is killed
        assert sweep(tmp_path, "sc://localhost:1", server, told.append) == [theirs.pid]
        [line] = told
        assert line.startswith(f"session {MINE} of job job: "), (
            "its query was interrupted, but there is no server"
        )
        assert set(workers(server)) == {shared.pid}
    finally:
        live.release()
        end(theirs, shared)


def end(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        process.kill()
        process.communicate()
