"""One run: a world, a cluster in it, a workload and its faults, from one seed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import logging
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from penstock.connectors.nats.client import TRANSACTION_HEADER
from penstock.testing.simulation import (
    FolderServer,
    ObjectServer,
    SimDisk,
    SimNats,
    Violation,
    World,
    virtual_time,
)
from penstock.testing.simulation.world import line
from penstock.types.batch import RowKind
from tests.simulation import faults, workloads
from tests.simulation.cluster import Cluster, LogRecords
from tests.simulation.connector import Outside
from tests.simulation.hosts import MEMORY, Hosts, simulated_hosts
from tests.simulation.user import User
from tests.simulation.watch import Watch
from tests.simulation.workloads import Change, Row, Workload, check_sink, difference, final_rows

#: A job that is not over by then never will be (virtual seconds).
LIMIT_S = 120.0
#: Where the simulated NATS server listens.
NATS = ("nats", 4222)
#: What the job held must be gone so long after its end.
GRACE_S = 40.0
#: Names of the jobs that run beside one another.
JOBS = ("job", "beside")


@dataclass
class Outcome:
    """``violation``: what was broken, or None. ``story``: the trace, for people."""

    seed: int
    workload: str
    faults: list[str]
    violation: str | None
    digest: str = ""
    virtual_s: float = 0.0
    rounds: int = 0
    faults_done: int = 0
    attempts: int = 0
    takeovers: int = 0
    checkpoints: int = 0
    restored: int = 0
    regional: int = 0
    story: list[str] = field(default_factory=list)


class Scenario:
    """``store``: a folder to keep objects in, if their disk may fail."""

    def __init__(self, world: World, workload: Workload, chance: random.Random, store: Path | None) -> None:
        self.world = world
        self.workload = workload
        self.chance = chance
        self.outside = Outside(world, workload.all_sources())
        self.cluster = Cluster(
            world, workload.cluster, ObjectServer(world) if store is None else FolderServer(world, store)
        )
        self.disk = SimDisk(world)
        self.nats = SimNats(world, lambda process: self.hosts.listen(process, *NATS))
        self.watch = Watch(self)
        self.hosts: Hosts
        self.users = [User(self, job, name) for job, name in zip(workload.jobs(), JOBS, strict=False)]
        self.faults_done = 0
        #: jobs of which something befell the tasks, or what they need to run on
        self.hurt: set[str] = set()

    def start(self) -> None:
        cluster = self.cluster
        cluster.start("dispatcher", "dispatcher-1")
        for i in (1, 2):
            cluster.start("jobmanager", f"jobmanager-{i}")
            cluster.start("resourcemanager", f"resourcemanager-{i}")
        for i in range(self.workload.taskmanagers):
            cluster.start("taskmanager", f"taskmanager-{i + 1}")
        if self.workload.needs_nats:
            self._start_nats()
        for i, user in enumerate(self.users):
            self.world.spawn(f"client-{i + 1}" if i else "client", user.run)

    def _start_nats(self) -> None:
        """The server, and who publishes the rows of sources to its streams."""
        jetstream, world = self.nats.jetstream, self.world
        for stream, source in self.workload.streams.items():
            jetstream.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"]})
            for at_s, split, row in self.outside.rows_in_time(source):
                subject, data = f"{stream}.{split}", msgspec.json.encode(row)
                world.at(at_s, partial(jetstream.publish, subject, {}, data))
        self.cluster.others["nats-server"] = self.nats.main
        self.cluster.start("nats-server", "nats-server")

    @property
    def over(self) -> bool:
        return all(user.over for user in self.users)

    async def one_is_over(self) -> None:
        """Told by each user; the last one looks whether all is tidy and ends the world."""
        if not self.over:
            return
        await self._all_is_tidy()
        self.cluster.closing = True
        self.world.stop()

    async def _all_is_tidy(self) -> None:
        """No process of the job is left, no slot is held, nothing is listed as active."""
        left: list[str] = []
        for _ in range(round(GRACE_S)):
            left = [p.name for p in self.world.living("taskmanager") if "/" in p.name]
            left += [k for k in self.cluster.objects.objects if k.startswith("active-jobs/")]
            if not left:
                return
            await asyncio.sleep(1.0)
        self.world.violated(f"left behind {GRACE_S:g} s after the job's end: {left}")

    def rows_of(self, sink: str) -> list[Change]:
        """What an observer of the sink has seen, in order."""
        how = self.workload.all_sinks()[sink]
        if "stream" in how:
            stream = self.nats.jetstream.streams[how["stream"]]
            rows = [json.loads(m.data) for m in stream.messages if TRANSACTION_HEADER not in m.headers]
            return [(RowKind.INSERT, tuple(row.values())) for row in rows]
        folder = how.get("folder")
        if folder is None:
            return self.outside.rows_of(sink)
        files = self.disk.list(folder)
        found = [json.loads(text) for file in files for text in self.disk.read(file.path).splitlines()]
        return [(RowKind.INSERT, tuple(row.values())) for row in found]

    def check_output(self, expected: dict[str, Counter[Row]] | None) -> None:
        for sink, how in self.workload.all_sinks().items():
            changes = self.rows_of(sink)
            wrong = check_sink(self.workload, sink, changes)
            if wrong is None and expected is not None:
                doubles = how["check"] == "at-least-once"
                wrong = difference(expected[sink], final_rows(changes), doubles=doubles)
            if wrong is not None:
                raise Violation(f"output of {sink}: {wrong}")


def _hosts_of(scenario: Scenario) -> AbstractContextManager[Hosts]:
    """Snapshots travel inline or as objects, whole or as deltas: the seed's choice."""
    limits = {
        "INLINE_BYTES": scenario.chance.choice((0, 1_500, 65_536)),
        "WHOLE_BYTES": scenario.chance.choice((0, 0, 65_536)),
    }
    return simulated_hosts(scenario.world, scenario.cluster.store_of, scenario.disk, limits)


@contextlib.contextmanager
def _logs_in(world: World) -> Iterator[None]:
    """Modules' logs go into the trace."""
    root = logging.getLogger("penstock")
    handler, level, propagate = LogRecords(world), root.level, root.propagate
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    root.propagate = False
    logging.disable(logging.NOTSET)
    try:
        yield
    finally:
        logging.disable(logging.CRITICAL)
        root.removeHandler(handler)
        root.level, root.propagate = level, propagate


@contextlib.contextmanager
def _buried() -> Iterator[None]:
    """What was killed in the block is freed behind it, unheard: a coroutine that is freed
    runs its ``finally``, which no killed process does."""
    collecting, said, heard = gc.isenabled(), sys.unraisablehook, logging.root.manager.disable
    gc.disable()
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # coroutines that never began
            gc.collect()
        logging.disable(heard)
        sys.unraisablehook = said
        if collecting:
            gc.enable()


def run(
    seed: int, workload: str, fault_names: list[str], *, verbose: Callable[[str], None] | None = None
) -> Outcome:
    """Never raises for what the run shows: that is in ``violation``."""
    expected = None
    if fault_names:
        try:
            expected = fault_free(workload)
        except Violation as err:
            return Outcome(seed=seed, workload=workload, faults=[], violation=str(err))
    with _buried():
        return _run(seed, workload, fault_names, expected, verbose)[0]


@functools.cache
def fault_free(workload: str) -> dict[str, Counter[Row]]:
    with _buried():
        outcome, rows = _run(0, workload, [], None, None)
    if outcome.violation is not None:
        raise Violation(f"the fault-free run of {workload} is wrong: {outcome.violation}")
    if not all(rows.values()):
        raise Violation(f"the fault-free run of {workload} writes nothing into a sink")
    return rows


def _run(
    seed: int,
    workload_name: str,
    fault_names: list[str],
    expected: dict[str, Counter[Row]] | None,
    verbose: Callable[[str], None] | None,
) -> tuple[Outcome, dict[str, Counter[Row]]]:
    workload = workloads.load(workload_name)
    for job in workload.jobs():
        job.graph(job.parallelism)  # planned outside of the world
    world = World(seed, verbose=verbose)
    with tempfile.TemporaryDirectory(prefix="penstock-sim-store-", dir=MEMORY) as folder:
        store = Path(folder, "store") if "power-loss" in fault_names else None
        scenario = Scenario(world, workload, random.Random(seed), store)
        Outside.now = scenario.outside
        violation = None
        rows: dict[str, Counter[Row]] = {}
        with _logs_in(world), virtual_time(world), _hosts_of(scenario) as hosts:
            scenario.hosts = hosts
            scenario.start()
            faults.schedule(scenario, fault_names, random.Random(seed + 1))
            try:
                world.run(LIMIT_S)
                world.look_for_unheard()
                scenario.check_output(expected)
                rows = {sink: final_rows(scenario.rows_of(sink)) for sink in workload.all_sinks()}
            except Violation as err:
                violation = str(err)
            world.close()
            del Outside.now
    jobs = scenario.watch.jobs.values()
    outcome = Outcome(
        seed=seed,
        workload=workload_name,
        faults=fault_names,
        digest=world.digest,
        virtual_s=world.now_s,
        rounds=world.events,
        faults_done=scenario.faults_done,
        attempts=sum(job.attempt for job in jobs),
        takeovers=sum(max(0, len(job.leaders) - 1) for job in jobs),
        checkpoints=sum(len(job.completed) for job in jobs),
        regional=sum(1 for job in jobs for r in job.restored if r.checkpoint_id and r.vertices),
        restored=sum(1 for job in jobs for r in job.restored if r.checkpoint_id),
        violation=violation,
        story=[line(entry) for entry in world.story],
    )
    return outcome, rows


__all__ = ["Outcome", "Scenario", "fault_free", "run"]
