"""Task managers and their slots. Reports of task managers decide; allocations that were commanded, and that
no report shows yet, are added."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.messages.resource_manager import SlotStatus, TaskManagerDetails

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.messages.resource_manager import RegisterTaskManager

#: Task managers and slots of one page of an overview. Each takes some 300 bytes, and a message of NATS at most 1 MiB.
PAGE = 1_000


@dataclass(slots=True)
class Commanded:
    """An AllocateSlot that was sent. ``acknowledged_ms``: when its answer came, or None. Reports that left
    the task manager before it took the slot may still arrive."""

    taskmanager_id: str
    slot_index: int
    job_id: str
    allocation_id: str
    acknowledged_ms: int | None = None


@dataclass(slots=True)
class TaskManager:
    """A task manager as its last report shows it."""

    report: RegisterTaskManager
    last_heartbeat_ms: int
    #: Slot index → allocation that was commanded and that no report shows yet.
    commanded: dict[int, Commanded] = field(default_factory=dict)
    #: How many probes in a row found no receiver.
    missed_probes: int = 0
    probing: bool = False
    #: When to open the next connection to it.
    watch_ms: int = 0
    #: Derived from report and commands: indices of free slots, and job id → number of slots.
    free: list[int] = field(default_factory=list)
    held: Counter[str] = field(default_factory=Counter)
    #: How many slots it adds to the total.
    counted: int = 0

    def slots(self) -> Iterator[SlotStatus]:
        """Every slot as it will be when the commands have arrived."""
        for slot in self.report.slots:
            command = self.commanded.get(slot.index)
            if command is not None and slot.state == "free":
                slot = SlotStatus(
                    index=slot.index,
                    state="allocated",
                    job_id=command.job_id,
                    allocation_id=command.allocation_id,
                )
            yield slot

    def details(self, taskmanager_id: str) -> TaskManagerDetails:
        """For REST."""
        return TaskManagerDetails(
            id=taskmanager_id,
            host=self.report.host,
            pid=self.report.pid,
            data_port=self.report.data_port,
            last_heartbeat_ms=self.last_heartbeat_ms,
            slots=list(self.slots()),
            details=self.report.details,
        )


def page_of(managers: Mapping[str, TaskManager], after: str | None) -> tuple[list[str], bool]:
    """The ids of a page of task managers in their order, and whether there are more behind them. ``after``: the greatest
    id of the page before; None: an empty page."""
    page: list[str] = []
    if after is None:
        return page, False
    room = PAGE
    for manager_id in sorted(manager_id for manager_id in managers if manager_id > after):
        room -= 1 + managers[manager_id].counted
        if page and room < 0:
            return page, True
        page.append(manager_id)
    return page, False


class Registry:
    """All task managers. ``grace_ms``: how long a report may lag behind an acknowledged allocation.

    The totals are updated for single task managers, so that the cost of a heartbeat does not grow with the
    cluster. ``version`` grows whenever they change.
    """

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self.taskmanagers: dict[str, TaskManager] = {}
        self._commanded: dict[str, Commanded] = {}
        self.total = 0
        self.free = 0
        self._held: Counter[str] = Counter()
        self.version = 0

    def update(self, report: RegisterTaskManager, now_ms: int) -> set[str]:
        """Takes a report. Returns the ids of jobs that lost slots, if another process than the known one sent
        it."""
        known = self.taskmanagers.get(report.taskmanager_id)
        if known is None or (known.report.pid, known.report.host) != (report.pid, report.host):
            lost = self.remove(report.taskmanager_id)
            known = self.taskmanagers[report.taskmanager_id] = TaskManager(report, now_ms)
            self._count(known)
            return lost
        changed = _allocations(known.report) != _allocations(report)
        known.report = report
        known.last_heartbeat_ms = now_ms
        if known.missed_probes:
            known.missed_probes = 0
            self.version += 1
        states = {slot.index: slot.state for slot in report.slots} if known.commanded else {}
        for command in list(known.commanded.values()):
            late = command.acknowledged_ms is not None and now_ms > command.acknowledged_ms + self._grace_ms
            if late or states.get(command.slot_index) != "free":
                self._forget(command)
                changed = True
        if changed:
            self._count(known)
        return set()

    def _count(self, manager: TaskManager) -> None:
        """Counts again what this task manager adds to the totals."""
        self._discount(manager)
        manager.free = [slot.index for slot in manager.slots() if slot.state == "free"]
        manager.held = Counter(slot.job_id for slot in manager.slots() if slot.job_id is not None)
        self.total += len(manager.report.slots)
        self.free += len(manager.free)
        self._held.update(manager.held)
        manager.counted = len(manager.report.slots)
        self.version += 1

    def _discount(self, manager: TaskManager) -> None:
        self.total -= manager.counted
        self.free -= len(manager.free)
        for job_id, count in manager.held.items():
            self._held[job_id] -= count
            if not self._held[job_id]:
                del self._held[job_id]
        self.version += 1

    def remove(self, taskmanager_id: str) -> set[str]:
        """Removes a task manager. Returns the ids of jobs that had slots there."""
        known = self.taskmanagers.pop(taskmanager_id, None)
        if known is None:
            return set()
        for command in list(known.commanded.values()):
            self._forget(command)
        self._discount(known)
        return set(known.held)

    def command(self, command: Commanded) -> None:
        """Records that an allocation was commanded."""
        manager = self.taskmanagers[command.taskmanager_id]
        manager.commanded[command.slot_index] = command
        self._commanded[command.allocation_id] = command
        self._count(manager)

    def commanded(self, allocation_id: str) -> Commanded | None:
        """The command of an allocation that no report shows yet, or None."""
        return self._commanded.get(allocation_id)

    def withdraw(self, allocation_id: str) -> None:
        """Records that a command failed: the slot counts as its task manager reports it."""
        command = self._commanded.get(allocation_id)
        if command is not None:
            self._forget(command)
            self._count(self.taskmanagers[command.taskmanager_id])

    def _forget(self, command: Commanded) -> None:
        del self._commanded[command.allocation_id]
        manager = self.taskmanagers.get(command.taskmanager_id)
        if manager is not None:
            del manager.commanded[command.slot_index]

    def of_job(self, job_id: str) -> int:
        """The number of slots that the job has, or will have when the commands have arrived."""
        return self._held[job_id]


def _allocations(report: RegisterTaskManager) -> list[tuple[int, str, str | None]]:
    return [(slot.index, slot.state, slot.allocation_id) for slot in report.slots]
