"""The sandbox of slots: what users' code is kept from, on a real cluster, and what a task manager refuses to start with."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api import (
    KeyedProcessFunction,
    Sink,
    Source,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from penstock.api.client import ClusterClient
from penstock.connectors.collect import decode_chunk
from penstock.embedded import EmbeddedCluster
from penstock.errors import ExternalError, FunctionError, PenstockError, SpecError
from penstock.messages.sandbox import Sandbox
from penstock.sandbox import enter, kernel, syscalls
from penstock.sandbox.probe import check
from penstock.sandbox.settings import refused_measures, sandbox_of, sandbox_of_planners
from tests.e2e.support import until_true

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "taskmanager.sandbox."


def sandboxed(**options: Any) -> Sandbox | None:
    return sandbox_of({PREFIX + name.replace("_", "-"): str(value) for name, value in options.items()})


def allowed(sandbox: Sandbox | None) -> str:
    """ "" if this machine allows the sandbox, else why not."""
    try:
        assert sandbox is not None
        check(sandbox)
    except PenstockError as err:
        return str(err)
    return ""


def everything(**options: Any) -> dict[str, str]:
    made = {"seccomp": "true", "read-only-root": "true", "limits.file-size": "64 mb", **options}
    return {PREFIX + name: str(value) for name, value in made.items()}


# -- settings -------------------------------------------------------------------------


def test_without_options_there_is_no_sandbox():
    assert sandboxed() is None
    assert sandboxed(no_new_privileges="false") is None


def test_measures_include_what_they_need(tmp_path):
    made = sandbox_of(
        {
            f"{PREFIX}read-only-root": "true",
            f"{PREFIX}writable-paths": str(tmp_path),
            f"{PREFIX}limits.open-files": "512",
            "high-availability.storageDir": (tmp_path / "the store").as_uri(),
        }
    )
    assert made == Sandbox(
        no_new_privileges=True,
        drop_capabilities=True,
        read_only_root=True,
        writable=(str(tmp_path), str(tmp_path / "the store")),
        limits={"RLIMIT_NOFILE": 512, "RLIMIT_CORE": 0},
    )
    assert made.at("/own", "/log").writable == (*made.writable, "/log")
    only = sandboxed(drop_capabilities="true")
    assert only is not None
    assert (only.no_new_privileges, only.read_only_root, only.writable) == (True, False, ())


def test_planners_have_the_measures_of_slots_without_the_store(tmp_path):
    config = {f"{PREFIX}read-only-root": "true", "high-availability.storageDir": tmp_path.as_uri()}
    assert sandbox_of_planners(config) is None
    made, slots = sandbox_of_planners({**config, "security.submission.sandbox": "true"}), sandbox_of(config)
    assert made is not None
    assert slots is not None
    assert (made.read_only_root, made.writable, slots.writable) == (True, (), (str(tmp_path),))
    with pytest.raises(SpecError, match="without a measure"):
        sandbox_of_planners({"security.submission.sandbox": "true"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"writable_paths": "/tmp"}, "needs 'taskmanager.sandbox.read-only-root: true'"),
        ({"read_only_root": "true", "writable_paths": "data/out"}, "is no absolute path"),
        ({"read_only_root": "true", "inaccessible_paths": "/tmp, /nowhere/at/all"}, "does not exist"),
    ],
)
def test_paths_that_would_have_no_effect_are_refused(options, words):
    with pytest.raises(SpecError, match=words) as refused:
        sandboxed(**options)
    assert "-paths'" in str(refused.value.where)


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyseccomp", None)
    with pytest.raises(SpecError, match="pyseccomp") as refused:
        sandboxed(seccomp="true")
    assert "penstock[sandbox]" in str(refused.value.remedy)


def test_the_filter_knows_its_names():
    """A name with a slip would be skipped as one that this architecture has not."""
    try:
        program = syscalls.filter_program()
    except PenstockError as err:
        pytest.skip(str(err))
    import pyseccomp as library

    architectures = (library.Arch.X86_64, library.Arch.X86, library.Arch.AARCH64, library.Arch.PPC)
    unknown = [n for n in syscalls.REFUSED if all(library.resolve_syscall(a, n) == -1 for a in architectures)]
    assert unknown == []
    assert len(program) % 8 == 0
    assert len(program) // 8 < 4_096  # the kernel's limit


# -- a machine that does not allow it -------------------------------------------------


def test_a_measure_that_the_kernel_refuses_is_named(monkeypatch):
    def refused() -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(kernel, "enter_namespaces", refused)
    monkeypatch.setattr(enter, "_check_descriptors", lambda: None)  # pytest has folders open
    with pytest.raises(ExternalError, match="does not allow a measure of the sandbox: read-only-root") as err:
        enter.enter(Sandbox(read_only_root=True))
    assert err.value.where == "taskmanager.sandbox.read-only-root"
    assert "user.max_user_namespaces" in str(err.value.remedy)


def test_an_open_folder_is_no_way_out(tmp_path):
    opened = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(PenstockError, match="open folder"):
            enter.enter(Sandbox(read_only_root=True))
    finally:
        os.close(opened)


def test_each_measure_is_tried_alone_when_not_all_work():
    tried = []

    def try_one(sandbox: Sandbox) -> None:
        tried.append(sandbox)
        if sandbox.read_only_root:
            raise ExternalError("no namespaces")

    refused = refused_measures(try_one)
    assert list(refused) == ["read-only-root"] or "pyseccomp" in str(refused.get("seccomp"))
    assert [s.read_only_root for s in tried].count(True) == (2 if "seccomp" not in refused else 1)


@pytest.mark.cluster
def test_a_task_manager_refuses_to_start_with_what_it_cannot_do(nats_url, tmp_path):
    """The limit is above what a process may have: as a kernel that refuses a measure, without needing one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = (1 << 30) + 1 if hard == resource.RLIM_INFINITY else hard + (1 << 30)
    given = {
        "nats.url": nats_url,
        "cluster.id": "refused",
        "io.tmp.dirs": tmp_path,
        f"{PREFIX}limits.open-files": wanted,
    }
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "penstock_services.taskmanager",
            *(f"-D{k}={v}" for k, v in given.items()),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "does not allow a measure of the sandbox: limits" in said
    assert "taskmanager.sandbox.limits" in said
    assert "ulimit -H" in said
    assert "template_ready" not in said


# -- a real cluster -------------------------------------------------------------------


def _death_signal(libc: Any) -> int:
    import ctypes

    found = ctypes.c_int()
    libc.prctl(2, ctypes.byref(found), 0, 0, 0)
    return found.value


class Intruder(KeyedProcessFunction):
    """Tries what it must not, counts in LevelDB, and kills its own slot when it is told to."""

    def __init__(self, outside: str, inside: str, secret: str, taskmanager: int) -> None:
        self.outside, self.inside, self.secret, self.taskmanager = outside, inside, secret, taskmanager

    def open(self, context: Any) -> None:
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.found = json.dumps(self.tried())

    def tried(self) -> dict[str, str]:
        import ctypes
        import platform
        import socket
        import tempfile
        from pathlib import Path

        libc = ctypes.CDLL(None, use_errno=True)
        numbers = {"x86_64": (321, 250, 298), "aarch64": (280, 219, 241)}.get(platform.machine())

        def call(name: str, *arguments: Any) -> str:
            ctypes.set_errno(0)
            given = getattr(libc, name)(*arguments)
            return "done" if given >= 0 else os.strerror(ctypes.get_errno())

        def attempt(work: Any) -> str:
            try:
                work()
            except OSError as err:
                return str(err.strerror)
            return "done"

        def memory() -> None:
            with tempfile.TemporaryFile() as file:
                file.write(b"x")
            Path("/dev/shm/penstock-test").write_text("x")

        status = Path("/proc/self/status").read_text().splitlines()
        fields = dict(line.split(":\t", 1) for line in status if ":\t" in line)
        found = {
            "write outside": attempt(lambda: Path(self.outside, "evil").write_text("x")),
            "remove outside": attempt(lambda: Path(self.outside, "kept").unlink()),
            "write inside": attempt(lambda: Path(self.inside, "note").write_text("x")),
            "temporary files": attempt(memory),
            "read a hidden file": attempt(lambda: Path(self.secret).read_text())
            + Path(self.secret).read_text(),
            "environment of the task manager": attempt(
                lambda: Path(f"/proc/{self.taskmanager}/environ").read_bytes()
            ),
            "ptrace": call("ptrace", 16, self.taskmanager, 0, 0),
            "mount": call("mount", b"none", b"/mnt", b"tmpfs", ctypes.c_ulong(0), None),
            "remount": call("mount", None, b"/", None, ctypes.c_ulong(0x20 | 0x1000), None),
            "umount": call("umount2", self.inside.encode(), 2),
            "unshare": call("unshare", 0x10000000),
            "chroot": call("chroot", self.inside.encode()),
            "AF_ALG": attempt(lambda: socket.socket(38, socket.SOCK_SEQPACKET)),
            "dies with its parent": str(_death_signal(libc)),
            "subprocess": subprocess.run(["echo", "works"], capture_output=True, text=True).stdout.strip(),
            "status": f"{fields['NoNewPrivs']} {fields['Seccomp']} {int(fields['CapEff'], 16)} {int(fields['CapPrm'], 16)}",
        }
        if numbers is not None:
            for name, number in zip(("bpf", "keyctl", "perf_event_open"), numbers, strict=True):
                found[name] = call("syscall", number, 0, 0, 0, 0, 0)
        return found

    def process_element(self, value: Any, ctx: Any) -> Any:
        import signal
        from pathlib import Path

        n = (self.count.value() or 0) + 1
        self.count.update(n)
        kill = Path(self.inside, "kill")
        if kill.exists():
            kill.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        yield self.found, n


#: A program that a planner loads; what it finds is its error.
PLANNED = """
import pathlib, tempfile
tempfile.TemporaryFile().close()
status = dict(line.split(":\\t", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines() if ":\\t" in line)
try:
    pathlib.Path({outside!r}, "evil").write_text("x")
except OSError as err:
    raise RuntimeError("could not write: " + err.strerror + "; " + status["NoNewPrivs"] + " " + status["Seccomp"])
"""


@pytest.mark.cluster
def test_a_job_runs_confined_and_is_restored(tmp_path: Path) -> None:
    if why := allowed(sandbox_of(everything())):
        pytest.skip(why)
    outside, inside, secret = (tmp_path / name for name in ("outside", "inside", "secret"))
    outside.mkdir()
    inside.mkdir()
    (outside / "kept").touch()
    secret.write_text("hidden")
    config = everything(**{"writable-paths": inside, "inaccessible-paths": secret})
    config["security.submission.sandbox"] = "true"
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    with EmbeddedCluster(slots=1, config=config) as cluster:
        taskmanager = cluster.child("taskmanager-0").pid
        env = StreamExecutionEnvironment(
            {
                "rest.address": cluster.rest_url,
                "execution.checkpointing.interval": "100 ms",
                "state.backend.local-recovery": "true",
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.delay": "0 s",
            }
        )
        env.set_state_backend("leveldb")
        row = Types.ROW_NAMED(["n"], [Types.LONG()])
        source = Source.connector("datagen", row, {"rows-per-second": 100})
        (
            env.from_source(source, None, "numbers")
            .map(lambda r: ("all", r.n), pair)
            .key_by(lambda r: r[0])
            .process(Intruder(str(outside), str(inside), str(secret), taskmanager), pair)
            .uid("intruder")
            .sink_to(Sink.connector("filesystem", {"path": str(inside / "out"), "format": "json"}))
        )
        job = env.execute_async("intruder")
        assert job is not None
        with ClusterClient(cluster.rest_url) as client:
            with pytest.raises(FunctionError, match="Read-only file system; 1 2") as refused_program:
                client.submit({"python": PLANNED.format(outside=str(outside))})
            assert "could not write" in str(refused_program.value)

            def counts() -> dict[str, int]:
                assert client.job(job.get_job_id())["state"] not in ("FAILED", "CANCELED", "FINISHED")
                found: dict[str, int] = client.checkpoints(job.get_job_id())["counts"]
                return found

            until_true(lambda: counts()["completed"] >= 2, "two checkpoints")
            (inside / "kill").touch()
            before = until_true(lambda: (c := counts())["restored"] and c["completed"], "the restart")
            until_true(lambda: counts()["completed"] >= before + 2, "two checkpoints more")
            assert not (inside / "kill").exists()
            client.cancel(job.get_job_id())
            until_true(lambda: client.job(job.get_job_id())["state"] == "CANCELED", "the end")
        files = [f for f in (inside / "out").glob("part-*") if f.is_file()]
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    # Counted on from the checkpoint: no row twice, none lost.
    assert sorted(list(r.values())[1] for r in rows) == list(range(1, len(rows) + 1))
    assert rows
    refused, read_only = "Operation not permitted", "Read-only file system"
    found = {text for r in rows for text in [next(iter(r.values()))]}
    assert [json.loads(text) for text in found] == [
        {
            "write outside": read_only,
            "remove outside": read_only,
            "write inside": "done",
            "temporary files": "done",
            "read a hidden file": "done",
            "environment of the task manager": "Permission denied",
            "dies with its parent": "9",
            "subprocess": "works",
            "status": "1 2 0 0",
            **dict.fromkeys(
                ("ptrace", "mount", "remount", "umount", "unshare", "chroot", "AF_ALG", "bpf", "keyctl", "perf_event_open"),
                refused,
            ),
        }
    ]  # fmt: skip
    assert not (outside / "evil").exists()
    assert (outside / "kept").exists()
    assert not os.path.exists("/dev/shm/penstock-test")


@pytest.mark.cluster
def test_spark_runs_confined() -> None:
    pytest.importorskip("pyspark")
    if why := allowed(sandbox_of(everything())):
        pytest.skip(why)
    sql = """
        CREATE TABLE n (i BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '700', 'fields.i.kind' = 'sequence',
          'fields.i.start' = '1', 'fields.i.end' = '700');
        SELECT i % 7 AS k, COUNT(*) AS c FROM n GROUP BY i % 7;
    """
    config = {**everything(), "security.submission.sandbox": "true"}
    with EmbeddedCluster(slots=1, config=config) as cluster, ClusterClient(cluster.rest_url) as client:
        job = client.submit({"sql": sql, "config": {"execution.engine": "spark"}})
        chunks = [decode_chunk(c.key, c.data) for found in client.results(job) for c in found]
        assert sorted(row["c"] for chunk in chunks for row in chunk.rows.to_pylist()) == [100] * 7
        spark = [
            status for command, status in _processes() if "java" in command and str(cluster.root) in command
        ]
        assert spark
        for fields in spark:
            assert (fields["NoNewPrivs"], fields["Seccomp"], int(fields["CapEff"], 16)) == ("1", "2", 0)


def _processes() -> Any:
    from pathlib import Path

    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text().replace("\0", " ")
            lines = (folder / "status").read_text().splitlines()
        except OSError:
            continue  # it has ended, or is another user's
        yield command, dict(line.split(":\t", 1) for line in lines if ":\t" in line)
