"""A cluster under hostile messages: REST by schemathesis and by raw connections, the bus by messages to every subject;
meanwhile a job must go on, and others must be accepted and finish."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from penstock.api.client import ClusterClient
from penstock.bus import Subjects
from penstock.bus.nats import NatsTransport
from penstock.embedded import EmbeddedCluster
from penstock.errors import BrokerError, PenstockError
from penstock_services.dispatcher.rest import described
from tests.hostile.health import Held, complaints, grown, held, was_cancelled
from tests.hostile.subjects import Messages
from tests.hostile.wire import STREAMS, Wire, filled

#: Bounded probes would wait for a Spark that competes with all of this; a slow machine takes minutes then.
STREAMING = {"execution.engine": "streaming"}
CONFIG = {
    "heartbeat.timeout": "10 s",
    "taskmanager.slot.timeout": "5 s",
    "high-availability.lease-duration": "5 s",
}
TABLE = "CREATE TABLE t (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '10'{more});"
#: Runs for ever, and is nobody's target.
WITNESS = (
    TABLE.format(more="")
    + "CREATE TABLE o (n BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT n FROM t;"
)
#: Ends by itself.
PROBE = (
    TABLE.format(more=", 'number-of-rows' = '5'")
    + "CREATE TABLE o (n BIGINT) WITH ('connector' = 'blackhole'); INSERT INTO o SELECT n FROM t;"
)
#: A request on the bus whose receiver has neither answered nor refused after this time.
ANSWER_S = 60.0
#: How long a probe may take before it counts as a hang; a busy machine plans slowly.
PROBE_S = 300.0
SCHEMATHESIS_S = 40
#: 503 is an honest answer here: hostile messages register task managers that do not exist, and end jobs.
SCHEMATHESIS = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "503"]
"""
AT_ONCE = 8


@dataclass
class Report:
    """What was sent and what was found."""

    sent: Counter[str] = field(default_factory=Counter)
    found: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, text: str) -> None:
        """Keeps the first finding of each kind, and prints it at once."""
        if kind not in self.found:
            self.found[kind] = text
            print(f"FOUND {kind}: {text[:3_000]}", flush=True)


class Run:
    """One run of ``minutes`` with one seed."""

    def __init__(self, cluster: EmbeddedCluster, minutes: float, seed: int) -> None:
        self._cluster = cluster
        self._seed = seed
        self._minutes = minutes
        self._until = float("inf")
        self.report = Report()
        self._client = ClusterClient(cluster.rest_url)

    def _over(self) -> bool:
        return time.monotonic() >= self._until

    def _processes(self) -> dict[str, Held]:
        services = [c for c in self._cluster.children if c.name.rsplit("-", 1)[0] not in ("nats", "valkey")]
        return {c.name: held(c.pid) for c in services if c.pid is not None}

    async def run(self) -> Report:
        """Runs all of it."""
        witness = self._client.submit(
            {"sql": WITNESS, "name": "witness", "parallelism": 1, "config": STREAMING}
        )
        await self._probe()
        # Once through everything: what is loaded and pooled once is no leak.
        await asyncio.gather(
            *(self._connections(random.Random(-n), 40) for n in range(AT_ONCE)),
            self._bus(random.Random(0), witness, 300),
        )
        before = self._processes()
        self._until = time.monotonic() + self._minutes * 60
        await asyncio.gather(
            asyncio.to_thread(self._schemathesis),
            *(self._connections(random.Random(self._seed * 100 + n)) for n in range(AT_ONCE)),
            self._bus(random.Random(self._seed), witness),
            self._probes(),
        )
        await self._probe()
        await self._settled(before)
        job = self._client.job(witness)
        dispatcher = self._cluster.child("dispatcher-0").log
        if job["state"] != "RUNNING" and not was_cancelled(dispatcher, witness):
            self.report.add(
                "witness",
                f"the job that nobody touched is {job['state']}: {self._client.exceptions(witness)}",
            )
        for child in self._cluster.children:
            if child.starts > 1:
                self.report.add(
                    f"crash of {child.name}",
                    f"{child.name} was started {child.starts} times:\n{child.tail(30)}",
                )
            for event, line in complaints(child.log).items():
                self.report.add(f"{event} in {child.name}", line)
        return self.report

    # -- the bus ----------------------------------------------------------------------

    async def _bus(self, rng: random.Random, witness: str, count: int | None = None) -> None:
        transport = await NatsTransport.connect(self._cluster.nats_url)
        managers = [t["id"] for t in self._client.taskmanagers()]
        victim = await self._victim()
        try:
            while not self._over() and count != 0:
                messages = Messages(rng, Subjects(), (victim, "f" * 32), managers)
                batch = 50 if count is None else min(50, count)
                await asyncio.gather(*(self._send(transport, messages) for _ in range(batch)))
                count = None if count is None else count - batch
                if self._client.job(victim)["state"] in ("FAILED", "CANCELED", "FINISHED"):
                    victim = await self._victim()
        finally:
            await transport.close()

    async def _victim(self) -> str:
        spec = {"sql": WITNESS, "name": "victim", "parallelism": 1}
        return await asyncio.to_thread(self._client.submit, spec)

    async def _send(self, transport: NatsTransport, messages: Messages) -> None:
        made = messages.next()
        self.report.sent["messages on the bus"] += 1
        try:
            if not made.answered:
                await transport.publish(made.subject, made.data)
                return
            reply = json.loads(await transport.request(made.subject, made.data, ANSWER_S))
        except BrokerError as err:
            if "no answer" in err.message and ".job." not in made.subject:
                self.report.add(f"no answer on {made.subject}", f"{made.data[:500]!r}")
            return
        error = reply.get("error") if isinstance(reply, dict) else None
        if isinstance(error, dict) and error.get("type") == "InternalError":
            self.report.add(
                f"internal error on {made.subject}: {error.get('message', '')[:60]}",
                f"{made.data[:800]!r} → {error}",
            )

    # -- REST ---------------------------------------------------------------------------

    async def _connections(self, rng: random.Random, count: int | None = None) -> None:
        at = urlsplit(self._cluster.rest_url)
        assert at.hostname is not None
        assert at.port is not None
        known = {"manager": [t["id"] for t in self._client.taskmanagers()], "job": ["f" * 32]}
        endpoints = [(e.method, e.path) for e in described() if e.path not in STREAMS]
        while not self._over() and count != 0:
            wire = Wire(rng, at.hostname, at.port, filled(rng, endpoints, known))
            sent, answer = await wire.once()
            self.report.sent["raw requests"] += 1
            count = None if count is None else count - 1
            if answer is None:
                self.report.add(f"a connection is held: {sent[:60]!r}", f"{sent[:500]!r}")
            elif answer[9:10] == b"5" and answer[9:12] != b"503":
                self.report.add(
                    f"a 5xx for {sent.partition(b' HTTP')[0][:60]!r}", f"{sent[:500]!r} → {answer[:1_500]!r}"
                )

    def _schemathesis(self) -> None:
        seed = self._seed
        while (left := self._until - time.monotonic()) > 5:
            seconds = int(min(left, SCHEMATHESIS_S))
            command = [
                Path(sys.executable).with_name("st"), "run", f"{self._cluster.rest_url}/openapi.json", "--phases", "fuzzing",
                "--checks", "not_a_server_error", "--max-time", str(seconds), "--seed", str(seed), "--request-timeout", "60",
                *(part for path in STREAMS for part in ("--exclude-path", path)), "--suppress-health-check", "all", "--no-color", "--continue-on-failure", "--max-response-time", "60",
            ]  # fmt: skip
            with tempfile.TemporaryDirectory() as folder:  # it keeps a database of examples
                Path(folder, "schemathesis.toml").write_text(SCHEMATHESIS)
                done = subprocess.run(
                    [str(part) for part in command], cwd=folder, capture_output=True, text=True, check=False
                )
            self.report.sent["runs of schemathesis"] += 1
            if done.returncode:
                self.report.add(f"schemathesis, seed {seed}", done.stdout[-6_000:] + done.stderr[-2_000:])
            seed += 1

    # -- what must go on ----------------------------------------------------------------

    async def _probes(self) -> None:
        while not self._over():
            await self._probe()
            await asyncio.sleep(20)

    async def _probe(self) -> None:
        """A job is accepted and finishes, and the cluster answers."""
        self.report.sent["probes"] += 1
        try:
            job = await asyncio.to_thread(
                self._client.submit, {"sql": PROBE, "name": "probe", "parallelism": 1, "config": STREAMING}
            )
            deadline = time.monotonic() + PROBE_S
            while (state := (await asyncio.to_thread(self._client.job, job))["state"]) != "FINISHED":
                if state == "CANCELED" and was_cancelled(self._cluster.child("dispatcher-0").log, job):
                    return
                if state in ("FAILED", "CANCELED") or time.monotonic() > deadline:
                    why = f"{state}; {self._client.exceptions(job)}; {self._client.overview()}"
                    self.report.add("probe", f"a job did not finish within {PROBE_S:g} s: {why}")
                    return
                await asyncio.sleep(0.5)
        except PenstockError as err:
            self.report.add("probe", f"a job is not accepted: {err}")

    async def _settled(self, before: dict[str, Held]) -> None:
        """Compares what the processes hold once what timed out has been given back."""
        deadline = time.monotonic() + 120
        problems = ["not looked at"]
        while problems and time.monotonic() < deadline:
            await asyncio.sleep(5)
            after = self._processes()
            problems = [line for name in before for line in grown(name, before[name], after[name])]
        for line in problems:
            self.report.add(line.partition(" holds")[0] + " grows", line)
        for name, now in after.items():
            was = before[name]
            print(f"{name}: descriptors {was.descriptors} → {now.descriptors}, connections {was.connections} → {now.connections}, threads {was.threads} → {now.threads}, MiB {was.rss_bytes >> 20} → {now.rss_bytes >> 20}")  # fmt: skip
