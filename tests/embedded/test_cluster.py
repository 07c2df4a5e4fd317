from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from penstock.cli.jobs import Results
from penstock.connectors.collect import ResultChunk
from penstock.embedded import cluster as embedded
from penstock.errors import ExternalError, SpecError


def test_only_folders_that_nobody_uses_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, used, fresh, other = (tmp_path / n for n in ("penstock-a", "penstock-b", "penstock-c", "else-d"))
    for folder in (left, used, fresh, other):
        folder.mkdir()
        (folder / ".lock").touch()
        if folder is not fresh:
            os.utime(folder / ".lock", (0, 0))
    with (used / ".lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        embedded.sweep_temporary_folders()
    assert [f.exists() for f in (left, used, fresh, other)] == [False, True, True, True]


def test_impossible_sizes_and_taken_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="slots must be at least 1"):
        embedded.EmbeddedCluster(slots=0).launch()
    (tmp_path / ".lock").touch()
    with (tmp_path / ".lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ExternalError, match="another cluster uses"):
            embedded.EmbeddedCluster(data_dir=tmp_path).launch()


def test_a_folder_that_cannot_be_made_is_named_with_its_option_and_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    data = tmp_path / "file" / "data"
    with pytest.raises(ExternalError) as refused:
        embedded.EmbeddedCluster(data_dir=data).launch()
    assert refused.value.where == f"--data {data}"
    assert "Not a directory" in str(refused.value.got)
    assert "--data" in str(refused.value.remedy)


def test_rows_repeated_after_a_restart_are_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np
    import pyarrow as pa

    def chunk(attempt: int, offset: int, *values: int) -> ResultChunk:
        rows = pa.RecordBatch.from_pydict({"a": list(values)})
        return ResultChunk(attempt, 0, offset, False, np.zeros(len(values), np.uint8), rows)

    chunks = [chunk(1, 0, 1, 2), None, chunk(1, 2, 3), chunk(2, 1, 2), chunk(2, 2, 3, 4), chunk(2, 4, 5)]

    class Client:
        def raise_if_failed(self, *args: object) -> None: ...
        def job(self, job_id: str) -> dict:
            return {"state": "FINISHED"}

    results = Results(Client(), "job", None, None)
    monkeypatch.setattr(results, "_chunks", lambda: iter(chunks))
    assert [row for rows in results.changes() for _, row in rows] == [(1,), (2,), (3,), (4,), (5,)]


def children_of(pid: int, column: str = "args") -> list[tuple[int, str]]:
    command = ["ps", "-ww", "-o", f"pid=,{column}=", "--ppid", str(pid)]
    found = subprocess.run(command, capture_output=True, text=True)
    return [(int(line.split()[0]), line.split(maxsplit=1)[1]) for line in found.stdout.splitlines()]


@pytest.mark.cluster
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_command_leaves_nothing_behind(number: int, tmp_path: Path) -> None:
    script = (
        "CREATE TABLE t (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '50');SELECT n FROM t;"
    )
    command = [Path(sys.executable).with_name("penstock"), "sql", "-e", script, "--format", "json"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        # A shell's background jobs, and what they start, ignore it: the tests may be one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("{")
    [(template, _)] = [c for c in children_of(process.pid) if "penstock.runtime.service_template" in c[1]]
    services = children_of(template, "comm")
    assert sorted(name for _, name in services) == [
        "dispatcher",
        "jobmanager",
        "resourcemanager",
        "taskmanager",
    ]
    pids = [template, *(pid for pid, _ in services)]
    assert list(tmp_path.glob("penstock-*"))
    process.send_signal(number)
    process.stdout.read()
    assert process.wait() == 128 + number
    assert not list(tmp_path.glob("penstock-*"))
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("key", ["rest.port", "taskmanager.numberOfTaskSlots"])
def test_what_an_argument_decides_is_no_configuration(key):
    """It was overridden without a word, or contradicted what the cluster waited for."""
    with pytest.raises(SpecError, match=f"'{key}' is chosen") as refused:
        embedded.EmbeddedCluster(config={key: "5"}).start()
    assert "--" in (refused.value.remedy or "")
