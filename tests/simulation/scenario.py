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
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from penstock.errors import PenstockError
from penstock.testing.simulation import Process, SimDisk, Violation, World, virtual_time
from penstock.testing.simulation.world import line
from penstock.types.batch import RowKind
from tests.simulation import faults, workloads
from tests.simulation.cluster import Client, Cluster, LogRecords
from tests.simulation.connector import Outside
from tests.simulation.hosts import Hosts, simulated_hosts
from tests.simulation.watch import Watch
from tests.simulation.workloads import Change, Row, Workload, check_sink, difference, final_rows

#: A job that is not over by then never will be (virtual seconds).
LIMIT_S = 120.0
#: What the job held must be gone so long after its end.
GRACE_S = 40.0
JOB = "job"


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
    epochs: int = 0
    restored: int = 0
    story: list[str] = field(default_factory=list)


class Scenario:
    def __init__(self, world: World, workload: Workload, chance: random.Random) -> None:
        self.world = world
        self.workload = workload
        self.chance = chance
        self.outside = Outside(world, workload.sources)
        self.cluster = Cluster(world, workload.cluster)
        self.disk = SimDisk(world)
        self.watch = Watch(self)
        self.hosts: Hosts
        self.over = False
        #: grows with every order to rescale, 0 when it was taken
        self.rescaling_wanted = 0
        self.faults_done = 0

    def start(self) -> None:
        cluster = self.cluster
        cluster.start("dispatcher", "dispatcher-1")
        for i in (1, 2):
            cluster.start("jobmanager", f"jobmanager-{i}")
            cluster.start("resourcemanager", f"resourcemanager-{i}")
        for i in range(self.workload.taskmanagers):
            cluster.start("taskmanager", f"taskmanager-{i + 1}")
        self.world.spawn("client", self._client)

    async def _client(self, process: Process) -> None:
        """Runs the job; when a rescaling is wanted, stops it with a savepoint and goes on
        from there at another parallelism, as another job."""
        client = Client(self.cluster, process)
        job_id, parallelism, savepoint = JOB, self.workload.parallelism, None
        while True:
            graph = self.workload.graph(parallelism)
            try:
                await client.submit(job_id, graph, savepoint)
            except PenstockError as err:
                self.world.violated(f"the job was refused: {err}")
            stop = await self._until_over(client, job_id)
            savepoint = await self._stopped_with(client, job_id, stop)
            if savepoint is None:
                break
            job_id, parallelism = f"{JOB}-{len(self.watch.jobs) + 1}", self.chance.choice((1, 2, 3))
            self.world.trace("client", "rescales", f"{job_id} at {parallelism} from {savepoint}")
        self.over = True
        await self._all_is_tidy()
        self.cluster.closing = True
        self.world.stop()

    async def _until_over(self, client: Client, job_id: str) -> str | None:
        """The trigger of a stop that a master took meanwhile."""
        taken = None
        while True:
            if self.rescaling_wanted and taken is None:
                trigger = f"stop-{job_id}-{self.rescaling_wanted}"
                if await client.stop(job_id, trigger):
                    taken, self.rescaling_wanted = trigger, 0
            status = await client.status(job_id)
            if status is not None and status["status"] in ("FINISHED", "FAILED", "CANCELED"):
                break
            await asyncio.sleep(0.5)
        if status["status"] != "FINISHED":
            self.world.violated(f"the job ended {status['status']}: {status['error']}")
        return taken

    async def _stopped_with(self, client: Client, job_id: str, trigger_id: str | None) -> str | None:
        """The savepoint that was the job's end. A job that failed behind its savepoint went
        on, and may have come to its own end."""
        completed = self.watch.jobs[job_id].completed
        if trigger_id is None or not completed or completed[-1].kind != "stop":
            return None
        path = await client.savepoint_of(job_id, trigger_id)
        if path is None:
            self.world.violated(f"{job_id} was stopped with a savepoint of which its details say nothing")
        return path

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
        folder = self.workload.sinks[sink].get("folder")
        if folder is None:
            return self.outside.rows_of(sink)
        files = self.disk.list(folder)
        found = [json.loads(text) for file in files for text in self.disk.read(file.path).splitlines()]
        return [(RowKind.INSERT, tuple(row.values())) for row in found]

    def check_output(self, expected: dict[str, Counter[Row]] | None) -> None:
        for sink in self.workload.sinks:
            changes = self.rows_of(sink)
            wrong = check_sink(self.workload, sink, changes)
            if wrong is None and expected is not None:
                wrong = difference(expected[sink], final_rows(changes))
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
    workload.graph(workload.parallelism)  # planned outside of the world
    world = World(seed, verbose=verbose)
    scenario = Scenario(world, workload, random.Random(seed))
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
            rows = {sink: final_rows(scenario.rows_of(sink)) for sink in workload.sinks}
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
        epochs=sum(len(job.leaders) for job in jobs),
        restored=sum(1 for job in jobs for r in job.restored if r.checkpoint_id),
        violation=violation,
        story=[line(entry) for entry in world.story],
    )
    return outcome, rows


__all__ = ["Outcome", "Scenario", "fault_free", "run"]
