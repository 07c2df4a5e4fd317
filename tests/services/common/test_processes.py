"""The two services as real processes, with real servers."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid

import pytest

from penstock.bus import Subjects, request
from penstock.bus.nats import NatsTransport
from penstock.errors import BrokerError
from penstock.messages.resource_manager import (
    ClusterOverview,
    DeclareReply,
    DeclareSlots,
    RequestClusterOverview,
)

pytestmark = pytest.mark.cluster

#: Also on a machine that stands still for a while.
KEEPS_ITS_LEASE = "-Dhigh-availability.lease-duration=1 min"


class Processes:
    """A cluster's services; all ended when the test ends."""

    def __init__(self, folder, nats_url, redis_url):
        self.cluster = f"c{uuid.uuid4().hex[:8]}"
        self.subjects = Subjects(self.cluster)
        self.folder = folder
        self.config = folder / "penstock.yaml"
        self.config.write_text(
            json.dumps(
                {
                    "cluster.id": self.cluster,
                    "nats.url": nats_url,
                    "high-availability": {
                        "redis.url": redis_url,
                        "storageDir": (folder / "store").as_uri(),
                        "lease-duration": "1 s",
                    },
                    "heartbeat": {"interval": "200 ms", "timeout": "5 s"},
                    "taskmanager.numberOfTaskSlots": 2,
                    "io.tmp.dirs": str(folder / "tmp"),
                }
            )
        )
        self.started = []

    def start(self, role, *more):
        log = self.folder / f"{role}-{len(self.started)}.log"
        env = {**os.environ, "PENSTOCK_CONF": str(self.config), "PENSTOCK_LOG_FORMAT": "json"}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", f"penstock_services.{role}", *more], env=env, stderr=out, stdout=out
            )
        process.log = log
        self.started.append(process)
        return process

    def stop(self):
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(20)


def lines(process):
    """The log so far, as dicts."""
    found = []
    for line in process.log.read_text().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


async def until(question, what):
    """Polls ``question`` until it says something true, for ``what``."""
    async with asyncio.timeout(120):
        while not (answer := await question()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return answer


async def steps_down(process):
    """What it says when it has lost its lease."""
    return [line for line in lines(process) if line["event"] == "lease_lost"]


@pytest.fixture
def processes(tmp_path, nats_url, redis_url):
    made = Processes(tmp_path, nats_url, redis_url)
    yield made
    made.stop()


@pytest.fixture
async def transport(nats_url):
    made = await NatsTransport.connect(nats_url)
    yield made
    await made.close()


def asker(processes, transport):
    async def overview():
        message = RequestClusterOverview()
        subject = processes.subjects.to_resourcemanager(message)
        try:
            return await request(transport, subject, message, ClusterOverview, timeout_s=0.5, retry=False)
        except BrokerError:
            return None

    return overview


async def test_registration_and_orderly_shutdown(processes, transport, tmp_path):
    manager = processes.start("resourcemanager", KEEPS_ITS_LEASE)
    worker = processes.start("taskmanager")
    overview = asker(processes, transport)

    async def two_slots():
        seen = await overview()
        return seen if seen and seen.slots_total == 2 else None

    seen = await until(two_slots, "registration")
    assert seen.taskmanagers[0].pid == worker.pid
    assert seen.epoch == 1
    declare = DeclareSlots(job_id="j", epoch=1, needed=3)
    assert await request(
        transport, processes.subjects.to_resourcemanager(declare), declare, DeclareReply
    ) == DeclareReply(allocated=0, missing=3, total=2, free=2, epoch=1)

    async def is_ready():
        return [line for line in lines(worker) if line["event"] == "service_ready"]

    [ready] = await until(is_ready, "the ready line")
    assert ready["role"] == "taskmanager"
    assert ready["slots"] == 2
    worker.terminate()
    assert await asyncio.to_thread(worker.wait, 60) == 0

    async def gone():
        seen = await overview()
        return seen is not None and seen.slots_total == 0

    await until(gone, "the goodbye")
    manager.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(manager.wait, 60) == 0
    assert lines(manager)[-1]["event"] == "service_stopped"
    assert not list((tmp_path / "tmp").glob("*/slots"))
    assert not list((tmp_path / "tmp").glob("*/data.sock"))


async def test_a_killed_task_manager_is_lost_long_before_its_heartbeat_times_out(processes, transport):
    processes.start("resourcemanager", "-Dheartbeat.timeout=1 h", KEEPS_ITS_LEASE)
    worker = processes.start("taskmanager")
    overview = asker(processes, transport)

    async def slots():
        seen = await overview()
        return seen.slots_total if seen else None

    async def has_slots():
        return await slots() == 2

    await until(has_slots, "registration")
    worker.kill()

    async def none():
        return await slots() == 0

    await until(none, "loss")


async def test_a_stopped_leader_is_succeeded_and_stays_silent(processes, transport):
    overview = asker(processes, transport)
    managers = [processes.start("resourcemanager") for _ in range(2)]
    processes.start("taskmanager")

    async def registered():
        seen = await overview()
        return seen if seen and seen.slots_total else None

    # Whoever leads: on a slow machine the lease may have changed hands already.
    before = await until(registered, "registration")
    [first] = [m for m in managers if before.resourcemanager_id in m.log.read_text()]
    first.send_signal(signal.SIGSTOP)

    async def successor():
        seen = await registered()
        return seen if seen and seen.epoch > before.epoch else None

    after = await until(successor, "a successor that knows the slots")
    assert after.resourcemanager_id != before.resourcemanager_id
    first.send_signal(signal.SIGCONT)

    await until(lambda: steps_down(first), "the old leader to step down")
    answers = [await until(overview, "an answer") for _ in range(20)]
    # Never the old leader's; another reign may have begun since.
    assert min(seen.epoch for seen in answers) >= after.epoch
    assert {seen.resourcemanager_id for seen in answers if seen.epoch == after.epoch} <= {
        after.resourcemanager_id
    }


async def test_losing_the_lease_store_and_the_broker(processes, own_nats, own_valkey, tmp_path):
    """Both away for a while: the task manager stays up, and all is well afterwards."""
    nats, valkey = own_nats(), own_valkey()
    mine = Processes(tmp_path, nats.url, valkey.url)
    transport = await NatsTransport.connect(nats.url)
    try:
        manager = mine.start("resourcemanager")
        worker = mine.start("taskmanager")
        overview = asker(mine, transport)

        async def registered():
            seen = await overview()
            return seen if seen and seen.slots_total == 2 else None

        before = await until(registered, "registration")
        fenced = len(await steps_down(manager))
        valkey.stop()

        async def fences_itself():
            return len(await steps_down(manager)) > fenced

        # (That nobody answers says too little: a slow answer looks the same.)
        await until(fences_itself, "the leader fencing itself")
        nats.stop()
        own_valkey()
        own_nats()
        after = await until(registered, "registration again")
        assert after.taskmanagers[0].pid == worker.pid
        assert after.epoch > before.epoch
    finally:
        await transport.close()
        mine.stop()


@pytest.mark.parametrize("role", ["resourcemanager", "taskmanager"])
def test_errors_at_start_are_readable(role, tmp_path, nats_url):
    def run(*argv):
        done = subprocess.run(
            [sys.executable, "-m", f"penstock_services.{role}", *argv],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "cannot connect to NATS at nats://127.0.0.1:1" in run(
        "-Dnats.url=nats://127.0.0.1:1", "-Dnats.connect.timeout=1 s"
    )
    assert "did you mean 'nats.url'" in run("-Dnats.ulr=x")
    assert "/not/there" in run("--config", "/not/there")
    if role == "resourcemanager":
        assert "no object store is configured" in run(f"-Dnats.url={nats_url}")


@pytest.mark.parametrize("role", ["resourcemanager", "taskmanager"])
def test_a_service_starts_without_the_engine(role):
    code = f"import sys, penstock_services.{role}.service, penstock_services.common.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "pyarrow", "obstore", "penstock.runtime", "penstock.sql"} & set(loaded.split())
