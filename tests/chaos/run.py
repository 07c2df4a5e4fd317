"""One run: a job on a cluster, faults by a plan, its output against the fault-free one."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.api.client import ClusterClient
from tests.chaos.cluster import ChaosCluster
from tests.chaos.compare import differences, digest
from tests.chaos.faults import KINDS
from tests.chaos.plan import Fault, Plan, plan
from tests.chaos.watch import ChaosFailure, Seen, Watch
from tests.chaos.workloads import Workload, make

Log = Callable[[dict[str, Any]], None]
_CHECKPOINT_WAIT_S = 3.0
_FLOW_S = 10.0


@dataclass(frozen=True)
class Result:
    """``wrong`` empty: everything was as it must be. ``faults``: thrown."""

    faults: int
    attempts: int
    digest: str
    wrong: list[str]


@dataclass(frozen=True)
class Thrown:
    fault: Fault
    target: str
    at: float
    before: Seen


class Run:
    def __init__(self, workload: Workload, plan: Plan, cluster: ChaosCluster, log: Log) -> None:
        self._workload = workload
        self._plan = plan
        self._cluster = cluster
        self._log = log
        self.thrown = 0
        self.attempts = 0
        self.story = ""
        #: Restarts that must not have been, and the like; the output is compared all the same.
        self.wrong: list[str] = []

    def execute(self) -> dict[str, pa.Table]:
        """The output. ChaosFailure when the job does what it must not."""
        self._workload.start(self._cluster.nats_url)
        with ClusterClient(self._cluster.rest_url) as client:
            job_id = client.submit(self._workload.spec(self._plan.config))
        self._watch = Watch(self._cluster.rest_urls, job_id)
        try:
            if self._plan.faults:
                self._watch.until(lambda s: s.runs and s.completed >= 2, "two checkpoints")
            for group in groups(self._plan.faults):
                self._throw(group)
            self._workload.release()
            faulty = bool(self._plan.faults)
            last = self._watch.until(
                lambda s: s.state == "FINISHED" or (s.attempt > 1 and not faulty), "the end", patience_s=600
            )
            self.attempts, self.story = last.attempt, self._watch.story()
            if last.state != "FINISHED":
                raise ChaosFailure(f"it restarted without a fault\n{self.story}")
            self._workload.finish()
            return self._workload.read()
        finally:
            self._workload.release()  # nobody waits for the word of a run that failed
            self._watch.close()

    def _throw(self, group: list[Fault]) -> None:
        time.sleep(group[0].pause_s)
        before = self._watch.until(lambda s: s.runs and s.completed >= 1, "a running job")
        if group[0].in_checkpoint:
            before = self._in_checkpoint(before)
        hit = self._cluster.store.hit
        thrown = self._act(group, before)
        if not thrown:
            return
        musts = {KINDS[t.fault.kind].must for t in thrown}
        grown = KINDS[thrown[0].fault.kind].must == "restart"
        healed = time.monotonic()
        # One may still have begun before it was over; the next cannot have.
        now = self._watch.until(lambda s: s.epoch >= before.epoch, "a master that answers")
        more = max(now.completed, before.completed) + 1
        after = self._watch.until(
            lambda s: s.runs and s.completed > more and (s.attempt > before.attempt or not grown),
            f"a restart and checkpoints after {[t.fault.kind for t in thrown]}" if grown
            else f"checkpoints after {[t.fault.kind for t in thrown]}",
        )  # fmt: skip
        wrong = []
        if musts == {"stay"} and after.attempt != before.attempt:
            wrong.append(f"attempt {before.attempt} became {after.attempt}: {self._watch.story()}")
        if after.attempt > before.attempt and after.restored < 1:
            wrong.append(f"attempt {after.attempt} restored no checkpoint")
        for item in thrown:
            self.thrown += 1
            self._log(
                {
                    "fault": item.fault.number,
                    "kind": item.fault.kind,
                    "target": item.target,
                    "at": round(item.at, 3),
                    "store_errors": self._cluster.store.hit - hit,
                    "lasts_s": round(item.fault.lasts_s, 2),
                    "doubled": item.fault.doubled,
                    "must": KINDS[item.fault.kind].must,
                    "attempt": [before.attempt, after.attempt],
                    "restored": after.restored if after.attempt > before.attempt else None,
                    "epoch": [before.epoch, after.epoch],
                    "checkpoint": [before.completed, after.completed],
                    "recovered_s": round(time.monotonic() - healed, 2),
                    "wrong": wrong,
                }
            )
        self.wrong += [f"{[t.fault.kind for t in thrown]}: {text}" for text in wrong]

    def _in_checkpoint(self, before: Seen) -> Seen:
        """When one is under way, if one is met soon."""
        try:
            return self._watch.until(lambda s: s.runs and s.in_progress, "one", _CHECKPOINT_WAIT_S)
        except ChaosFailure:
            return self._watch.until(lambda s: s.runs, "a running job")

    def _act(self, group: list[Fault], before: Seen) -> list[Thrown]:
        """Begin and end each at its time."""
        thrown: list[Thrown] = []
        started, offset = time.monotonic(), 0.0
        ends: list[tuple[float, Callable[[], None]]] = []
        flows = False

        def end_until(moment: float) -> None:
            for due in sorted(ends, key=lambda e: e[0]):
                if due[0] <= moment:
                    self._sleep_until(started + due[0], flows)
                    due[1]()
                    ends.remove(due)

        try:
            for fault in group:
                offset += fault.pause_s * 0.3 if fault.doubled else 0.0
                end_until(offset)
                time.sleep(max(0.0, started + offset - time.monotonic()))
                kind = KINDS[fault.kind]
                targets = kind.targets(self._cluster)
                if not targets or (kind.hosts and self._cluster.not_shown):
                    why = self._cluster.not_shown or "no target at this moment"
                    self._log({"fault": fault.number, "kind": fault.kind, "skipped": why})
                    continue
                target = targets[int(fault.choice * len(targets))]
                thrown.append(Thrown(fault, target, time.time(), before))
                kind.begin(self._cluster, target)
                flows = flows or kind.flows
                if kind.end is not None:
                    ends.append((offset + fault.lasts_s, partial(kind.end, self._cluster, target)))
            end_until(float("inf"))
        except BaseException:
            for _, late in ends:
                late()
            raise
        return thrown

    def _sleep_until(self, moment: float, flows: bool) -> None:
        """``flows``: rows must reach sinks in every ``_FLOW_S`` of it."""
        while (left := moment - time.monotonic()) > 0:
            taken = self._workload.rows_taken()
            time.sleep(min(left, _FLOW_S))
            if flows and left >= _FLOW_S and taken is not None and self._workload.rows_taken() == taken:
                raise ChaosFailure(f"no row reached a sink in {_FLOW_S:.0f} s; {taken} before")


def groups(faults: list[Fault]) -> Iterator[list[Fault]]:
    """A fault with those that are thrown on top of it."""
    group: list[Fault] = []
    for fault in faults:
        if group and not fault.doubled:
            yield group
            group = []
        group.append(fault)
    if group:
        yield group


def fault_free(name: str, folder: Path, size: int | None) -> dict[str, pa.Table]:
    """The output of the same job in the same cluster when nothing goes wrong."""
    calm = replace(plan(0, name, 0, KINDS), sink="folder")
    cluster = ChaosCluster(folder / "cluster", seed=0)
    try:
        cluster.start()
        workload = make(name, folder, size=size)
        workload.release()
        out = Run(workload, calm, cluster, lambda line: None).execute()
    finally:
        cluster.stop()
    if violations := workload.violations():
        raise ChaosFailure(f"the fault-free run: {violations}")
    return out


def one_run(
    name: str, plan: Plan, seed: int, folder: Path, want: dict[str, pa.Table], log: Log, size: int | None
) -> Result:
    cluster = ChaosCluster(folder / "cluster", seed=seed)
    run, wrong, found = None, [], ""
    try:
        cluster.start()
        workload = make(name, folder, size=size, store=cluster.store if plan.sink == "store" else None)
        run = Run(workload, plan, cluster, log)
        got = run.execute()
        found = digest(got)
        wrong += [json.dumps(asdict(d)) for d in differences(got, want) if d]
        wrong += workload.violations()
    except Exception as err:
        wrong.append(str(err))
        if not isinstance(err, ChaosFailure):
            wrong.append(traceback.format_exc())
    finally:
        cluster.stop()
    if run is None:
        return Result(0, 0, found, wrong)
    return Result(run.thrown, run.attempts, found, [*run.wrong, *wrong])
