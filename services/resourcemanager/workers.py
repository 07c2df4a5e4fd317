"""Decides which workers a resource provider should run: more if jobs lack slots, fewer if some are idle.

A pure core. The provider's own list tells which workers exist: a new leader adopts the workers in it.
Worker ids contain the leader's epoch, so no id is used twice. Task managers that the provider did not
start are counted and left alone.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.providers import WorkerPhase, WorkerProfile

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The time between two requests for the provider's workers.
CHECK_MS = 500
#: The time over which failures are counted.
RATE_MS = 60_000


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """``slots``: of each worker. ``least_slots`` and ``most_slots``: of the cluster. ``redundant``: how many
    workers are kept free beyond what jobs need. ``idle_ms``: a worker without work for so long is
    released. ``registration_ms``: a worker that has not registered after this time is given up. After
    ``most_failures`` in a minute no worker is started for ``retry_ms``."""

    slots: int = 1
    least_slots: int = 0
    most_slots: int = 2**31 - 1
    redundant: int = 0
    idle_ms: int = 30_000
    registration_ms: int = 300_000
    most_failures: float = 10.0
    retry_ms: int = 3_000


@dataclass(frozen=True, slots=True)
class Registered:
    """The slots of a task manager that sends heartbeats, and how many of them are free."""

    slots: int
    free: int


@dataclass(slots=True)
class _Worker:
    """A worker that should exist. ``since_ms``: since when its registration is awaited."""

    since_ms: int
    registered: bool = False
    idle_since_ms: int | None = None


@dataclass(slots=True)
class Workers:
    """The workers that should exist, and what is known of them."""

    settings: WorkerSettings
    epoch: int
    #: Worker id → worker, for all that should exist.
    wanted: dict[str, _Worker] = field(default_factory=dict)
    #: Ids of released workers that are still registered. They get no more work.
    draining: set[str] = field(default_factory=set)
    _phases: Mapping[str, WorkerPhase] | None = None
    _asking: bool = False
    _next_ms: int = 0
    _failures: list[int] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def due(self, now_ms: int) -> bool:
        """Whether to ask the provider now. If so, a call of ``listed`` or ``failed`` follows."""
        if self._asking or now_ms < self._next_ms:
            return False
        self._asking = True
        return True

    def done(self, now_ms: int) -> None:
        """The provider has done what it was told."""
        self._asking, self._next_ms = False, now_ms + CHECK_MS

    def failed(self, now_ms: int) -> None:
        """The provider did not answer, or could not do what it was told."""
        self._asking, self._next_ms = False, now_ms + self.settings.retry_ms

    def listed(
        self,
        phases: Mapping[str, WorkerPhase],
        managers: Mapping[str, Registered],
        missing: int,
        now_ms: int,
    ) -> dict[str, WorkerProfile] | None:
        """Worker id → profile of all workers that should exist; None if the provider already has exactly
        these. ``missing``: the number of slots that jobs lack; free slots are not subtracted."""
        if self._phases is None:
            there = (WorkerPhase.PENDING, WorkerPhase.RUNNING)
            self.wanted = {worker: _Worker(now_ms) for worker, phase in phases.items() if phase in there}
        self._phases = phases
        self.draining &= managers.keys()
        self._look(managers, now_ms)
        self._start(managers, missing, now_ms)
        self._release(managers, missing, now_ms)
        if self.wanted.keys() == phases.keys() and WorkerPhase.STOPPING not in phases.values():
            self.done(now_ms)
            return None
        return {worker: WorkerProfile(slots=self.settings.slots) for worker in self.wanted}

    # -- steps -----------------------------------------------------------------------------------

    def _look(self, managers: Mapping[str, Registered], now_ms: int) -> None:
        """Gives up workers that ended or never registered, and records which are idle."""
        assert self._phases is not None
        for worker_id, worker in list(self.wanted.items()):
            manager = managers.get(worker_id)
            if self._phases.get(worker_id) in (WorkerPhase.ENDED, WorkerPhase.STOPPING):
                self._give_up(worker_id, now_ms)
            elif manager is not None:
                worker.registered = True
                idle = manager.free == manager.slots
                if not idle:
                    worker.idle_since_ms = None
                elif worker.idle_since_ms is None:
                    worker.idle_since_ms = now_ms
            elif worker.registered:
                # It was lost, and may come back, for example after an interruption of the network.
                worker.registered, worker.since_ms, worker.idle_since_ms = False, now_ms, None
            elif now_ms - worker.since_ms > self.settings.registration_ms:
                self._give_up(worker_id, now_ms)

    def _give_up(self, worker_id: str, now_ms: int) -> None:
        del self.wanted[worker_id]
        self.draining.add(worker_id)
        self._failures = [at for at in self._failures if now_ms - at < RATE_MS] + [now_ms]

    def _slots(self, managers: Mapping[str, Registered]) -> tuple[int, int]:
        """(all, free) slots of the cluster. Workers that are being started count as if they were there."""
        usable = [manager for worker, manager in managers.items() if worker not in self.draining]
        coming = self.settings.slots * sum(not worker.registered for worker in self.wanted.values())
        return sum(m.slots for m in usable) + coming, sum(m.free for m in usable) + coming

    def _start(self, managers: Mapping[str, Registered], missing: int, now_ms: int) -> None:
        settings = self.settings
        recent = [at for at in self._failures if now_ms - at < RATE_MS]
        if len(recent) > settings.most_failures and now_ms - recent[-1] < settings.retry_ms:
            return
        total, free = self._slots(managers)
        lacking = max(missing + settings.redundant * settings.slots - free, settings.least_slots - total)
        while lacking > 0 and total + settings.slots <= settings.most_slots:
            self.wanted[f"w{self.epoch}-{next(self._numbers)}"] = _Worker(now_ms)
            total, lacking = total + settings.slots, lacking - settings.slots

    def _release(self, managers: Mapping[str, Registered], missing: int, now_ms: int) -> None:
        settings = self.settings
        idle = [
            (worker.idle_since_ms, worker_id)
            for worker_id, worker in self.wanted.items()
            if worker.idle_since_ms is not None and now_ms - worker.idle_since_ms >= settings.idle_ms
        ]
        for _, worker_id in sorted(idle):
            total, free = self._slots(managers)
            slots = managers[worker_id].slots
            spare = free - slots >= missing + settings.redundant * settings.slots
            if spare and total - slots >= settings.least_slots:
                del self.wanted[worker_id]
                self.draining.add(worker_id)
