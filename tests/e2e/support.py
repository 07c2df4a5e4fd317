"""What the end-to-end tests ask and compare."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    import pyarrow as pa
    import pytest

    from penstock.api.client import ClusterClient
    from penstock.embedded import EmbeddedCluster

#: Against hanging only: two Sparks that start at once on a slow machine take minutes.
DEADLINE_S = float(os.environ.get("PENSTOCK_TEST_DEADLINE", "600"))


def until_true(
    condition: Callable[[], Any],
    what: str,
    story: Callable[[], Any] = lambda: "",
    *,
    every_s: float = 0.1,
) -> Any:
    """Poll until ``condition`` is truthy; a hang fails the test instead of blocking it.
    ``story``: what is then known, for the message. ``every_s``: seconds between two questions; a
    question to the cluster costs it milliseconds, so a state that stays is asked for less often."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(every_s)
    raise AssertionError(f"still waiting after {DEADLINE_S:.0f} s for: {what}\n{story()}")


@contextlib.contextmanager
def sql_gateway(options: Mapping[str, str]) -> Iterator[str]:
    """The URL of a SQL gateway that runs as a process of its own."""
    command = [sys.executable, "-m", "penstock_services.gateway"]
    command += [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    reading: threading.Thread | None = None
    try:
        assert process.stderr is not None
        ready = next(line for line in process.stderr if "event=gateway_ready" in line)
        found = re.search(r"rest=(\S+)", ready)
        assert found is not None
        # A pipe that nobody reads would stop the gateway at its next line of the log.
        reading = threading.Thread(target=deque, args=(process.stderr, 0))
        reading.start()
        yield found[1]
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
        if reading is not None:
            reading.join()
        assert process.stderr is not None
        process.stderr.close()


def lend(patch: pytest.MonkeyPatch, example: ModuleType, cluster: EmbeddedCluster) -> None:
    """Makes an example run on ``cluster``, which goes on when the example ends. The example must ask for the
    same task managers and slots."""

    class Lent:
        def __init__(self, **wanted: Any) -> None:
            assert {name: getattr(cluster, name) for name in wanted if name != "on_event"} == {
                name: value for name, value in wanted.items() if name != "on_event"
            }
            self.rest_url, self.nats_url = cluster.rest_url, cluster.nats_url

        def start(self) -> None:
            """It runs already."""

        def stop(self) -> None:
            """Whoever lends it stops it."""

    patch.setattr(example, "EmbeddedCluster", Lent)


def story_of(client: ClusterClient, job_id: str) -> str:
    """What a job does: its tasks, its checkpoints, its failures."""
    job, checkpoints = client.job(job_id), client.checkpoints(job_id)
    tasks = [(v["name"], v.get("status"), v.get("tasks"), v.get("metrics")) for v in job["vertices"]]
    lines = [f"{job['state']}, attempt {job['attempt']}, restored {job.get('restored-checkpoint')}"]
    lines += [f"  {task}" for task in tasks]
    lines += [f"  checkpoints {checkpoints.get('counts')}"]
    lines += [f"  {entry}" for entry in checkpoints.get("history", [])[:3]]
    return "\n".join([*lines, f"  {client.exceptions(job_id)}"])


def running_spark(client: ClusterClient) -> int | None:
    """The process of the task manager's Spark; None if there is none, or nobody has told of it."""
    managers = [p for p in client.info()["processes"] if p["role"] == "taskmanager"]
    pids = [p["details"].get("spark_pid") for p in managers]
    return next((pid for pid in pids if pid and Path(f"/proc/{pid}").exists()), None)


def spark_pid(client: ClusterClient) -> int:
    """The Spark of the only task manager, as soon as its report tells of one that lives (a
    resource manager that does not answer in time is asked again)."""

    return until_true(lambda: running_spark(client), "the task manager's Spark")


def slot_pid(client: ClusterClient) -> int:
    """The process of some allocated slot, as soon as a task manager's report tells of one."""

    def found() -> int | None:
        slots = [slot for process in client.info()["processes"] for slot in process.get("slots", [])]
        return next((slot["pid"] for slot in slots if slot.get("pid")), None)

    return until_true(found, "a slot's process")


def python_processes(client: ClusterClient) -> list[int]:
    """The daemons of the task manager's Spark, one a session that called Python."""
    spark, found = spark_pid(client), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == spark and b"penstock.spark.python_daemon" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def spark_drivers(cluster: EmbeddedCluster) -> list[int]:
    """Processes below the task manager that talk to Spark; not what they have started in turn."""
    found = [p for p in _below(cluster.child("taskmanager-0").pid) if "penstock.spark.driver" in _words(p)]
    return [pid for pid in found if not set(_below(pid)) & set(found)]


def _words(pid: int) -> list[str]:
    """Its command line; empty when it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []


def _below(pid: int) -> list[int]:
    out: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                out += [int(child), *_below(int(child))]
    return out


def files_below(folder: Path) -> list[Path]:
    """All, also while files and folders come and go (``Path.rglob`` fails at one that is gone)."""
    return [Path(parent) / name for parent, _, names in os.walk(folder) for name in names]


def assert_same_board(got: pa.Table, want: pa.Table) -> None:
    """Equal, row by row; else which rows are missing, doubled or different."""
    if got.equals(want):
        return
    mine, theirs = (Counter(repr(row) for row in table.to_pylist()) for table in (got, want))
    lost, extra = list((theirs - mine).elements()), list((mine - theirs).elements())
    raise AssertionError(
        f"{got.num_rows} rows for {want.num_rows}; {len(lost)} are missing, {len(extra)} are not wanted\n"
        + "\n".join([*(f"- {row}" for row in lost[:8]), *(f"+ {row}" for row in extra[:8])])
    )
