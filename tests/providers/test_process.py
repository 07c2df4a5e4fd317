"""Workers as processes of this machine, through the kit; and what is particular to them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest

from penstock.errors import ExternalError, SpecError
from penstock.providers import WorkerPhase, WorkerProfile, open_provider
from penstock.providers.process import WORKER_VARIABLE, ProcessProvider, taskmanager_command
from penstock.testing.conformance import ProviderConformance
from penstock_services.common.configuration import read_file

SLEEP = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
DEAF = [sys.executable, "-S", "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"]


def processes_of(cluster: str, worker_id: str) -> list[int]:
    entry = f"{WORKER_VARIABLE}={cluster}/{worker_id}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            running = entry in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if running:
            found.append(int(folder.name))
    return found


class TestProcesses(ProviderConformance):
    command = SLEEP

    def setup_method(self):
        super().setup_method()
        self.tag = uuid.uuid4().hex[:8]
        self.opened = {}

    def _name(self, cluster_id):
        return f"{cluster_id}-{self.tag}"

    async def open(self, cluster_id="kit"):
        self.opened[cluster_id] = True
        return ProcessProvider(
            self._name(cluster_id), self.folder / cluster_id, lambda _id, _profile: self.command
        )

    async def instances(self, worker_id, cluster_id="kit"):
        return len(processes_of(self._name(cluster_id), worker_id))

    async def end_worker(self, worker_id):
        for pid in processes_of(self._name("kit"), worker_id):
            os.kill(pid, signal.SIGKILL)

    async def clean(self):
        for cluster_id in self.opened:
            provider = await self.open(cluster_id)
            await provider.ensure({})


async def test_a_worker_that_ignores_sigterm_is_killed_after_its_grace(tmp_path):
    cluster = uuid.uuid4().hex
    provider = ProcessProvider(cluster, tmp_path, lambda *_: DEAF, grace_s=0.0)
    await provider.ensure({"a": WorkerProfile()})
    # Until Python has set its handler, SIGTERM would end it.
    while not _ignores_sigterm(processes_of(cluster, "a")[0]):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await provider.ensure({})
    assert (await provider.list())["a"] is WorkerPhase.STOPPING
    while await provider.list():
        await provider.ensure({})
    assert processes_of(cluster, "a") == []


def _ignores_sigterm(pid: int) -> bool:
    ignored = next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("SigIgn"))
    return bool(int(ignored.split()[1], 16) & (1 << (signal.SIGTERM - 1)))


async def test_a_command_that_cannot_run_says_so_and_the_id_has_ended(tmp_path):
    provider = ProcessProvider(uuid.uuid4().hex, tmp_path, lambda *_: [str(tmp_path / "nothing")])
    with pytest.raises(ExternalError, match="worker 'a' cannot be started"):
        await provider.ensure({"a": WorkerProfile()})
    assert dict(await provider.list()) == {"a": WorkerPhase.ENDED}


async def test_a_worker_that_the_kernel_is_about_to_run_has_not_ended(tmp_path, monkeypatch):
    """For a moment a process that is being started has no environment by which it could be found."""
    looks: Counter[int] = Counter()
    named = ProcessProvider._named

    def later(self: ProcessProvider, pid: int) -> str | None:
        looks[pid] += 1
        return named(self, pid) if looks[pid] > 3 else None

    monkeypatch.setattr(ProcessProvider, "_named", later)
    provider = ProcessProvider(uuid.uuid4().hex, tmp_path, lambda *_: SLEEP)
    await provider.ensure({"a": WorkerProfile()})
    assert dict(await provider.list()) == {"a": WorkerPhase.RUNNING}
    while await provider.list():
        await provider.ensure({})


async def test_a_profile_that_makes_no_sense_is_refused(tmp_path):
    provider = ProcessProvider("c", tmp_path, lambda *_: SLEEP)
    for worker_id, profile in (("../x", WorkerProfile()), ("a", WorkerProfile(slots=0))):
        with pytest.raises(SpecError):
            await provider.ensure({worker_id: profile})
    assert not await provider.list()


def test_a_task_manager_is_started_with_its_id_and_slots(tmp_path):
    profile = WorkerProfile(slots=4, settings={"taskmanager.host": "x"})
    command = taskmanager_command("tm-7", profile, {"cluster.id": "c"}, tmp_path)
    assert command[1:5] == ["-P", "-m", "penstock_services.taskmanager", "--config"]
    assert read_file(command[5]) == {
        "cluster.id": "c",
        "taskmanager.host": "x",
        "taskmanager.resource-id": "tm-7",
        "taskmanager.numberOfTaskSlots": "4",
    }


async def test_passwords_are_in_a_file_of_this_user_and_on_no_command_line(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/echo")
    settings = {"nats.url": "nats://me:secret@host:4222", "store.password": "p: 'ss\n\u00e9 #\\"}
    provider = open_provider(
        "process", "c", {"resourcemanager.provider.process.dir": str(tmp_path), **settings}
    )
    await provider.ensure({"tm-1": WorkerProfile()})
    while (await provider.list())["tm-1"] is not WorkerPhase.ENDED:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    [file] = tmp_path.rglob("*.yaml")
    assert "secret" not in (file.parent / "tm-1.log").read_text()
    assert settings.items() <= read_file(file).items()
    assert file.stat().st_mode & 0o077 == 0
    await provider.ensure({})
    assert await provider.list() == {}
    assert sorted(f.name for f in tmp_path.rglob("*") if f.is_file()) == ["lock", "tm-1.log"]


def test_the_provider_is_found_by_name(tmp_path):
    found = open_provider("process", "c", {"resourcemanager.provider.process.dir": str(tmp_path)})
    assert isinstance(found, ProcessProvider)
    with pytest.raises(SpecError, match="unknown resource provider 'yarnn'"):
        open_provider("yarnn", "c", {})
