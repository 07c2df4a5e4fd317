"""Task managers and their slots. Reports are the truth; allocations that were commanded
but do not show in a report yet lie over them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.messages.cluster import SlotStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.messages.cluster import RegisterTaskManager


@dataclass(slots=True)
class Commanded:
    """An AllocateSlot that was sent. ``acknowledged_ms``: when its answer came, or None;
    reports that left the task manager before it took the slot may still arrive."""

    taskmanager_id: str
    slot_index: int
    job_id: str
    allocation_id: str
    acknowledged_ms: int | None = None


@dataclass(slots=True)
class TaskManager:
    report: RegisterTaskManager
    last_heartbeat_ms: int
    #: slot index → allocation commanded for it that no report has shown yet
    commanded: dict[int, Commanded] = field(default_factory=dict)
    #: probes in a row that found nobody
    missed_probes: int = 0
    probing: bool = False

    def slots(self) -> Iterator[SlotStatus]:
        """Every slot as it is or will be in a moment."""
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

    def free(self) -> list[int]:
        return [slot.index for slot in self.slots() if slot.state == "free"]

    def of_job(self, job_id: str) -> int:
        return sum(slot.job_id == job_id for slot in self.slots())

    def jobs(self) -> set[str]:
        return {slot.job_id for slot in self.slots() if slot.job_id is not None}


class Registry:
    """``grace_ms``: how long a report may lag behind an acknowledged allocation."""

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self.taskmanagers: dict[str, TaskManager] = {}

    def update(self, report: RegisterTaskManager, now_ms: int) -> tuple[bool, set[str]]:
        """Take a report. Returns (new or restarted, jobs that lost slots by a restart)."""
        known = self.taskmanagers.get(report.taskmanager_id)
        if known is None or (known.report.pid, known.report.host) != (report.pid, report.host):
            lost = known.jobs() if known is not None else set()
            self.taskmanagers[report.taskmanager_id] = TaskManager(report, now_ms)
            return True, lost
        known.report = report
        known.last_heartbeat_ms = now_ms
        known.missed_probes = 0
        states = {slot.index: slot for slot in report.slots}
        for index, command in list(known.commanded.items()):
            slot = states.get(index)
            late = command.acknowledged_ms is not None and now_ms > command.acknowledged_ms + self._grace_ms
            if slot is None or slot.state != "free" or late:
                del known.commanded[index]
        return False, set()

    def remove(self, taskmanager_id: str) -> set[str]:
        """Forget it; returns the jobs that had slots there."""
        known = self.taskmanagers.pop(taskmanager_id, None)
        return known.jobs() if known is not None else set()

    def command(self, command: Commanded) -> None:
        self.taskmanagers[command.taskmanager_id].commanded[command.slot_index] = command

    def commanded(self, allocation_id: str) -> Commanded | None:
        for manager in self.taskmanagers.values():
            for command in manager.commanded.values():
                if command.allocation_id == allocation_id:
                    return command
        return None

    def withdraw(self, allocation_id: str) -> None:
        """The command came to nothing: the slot is as its task manager reports it."""
        command = self.commanded(allocation_id)
        if command is not None:
            del self.taskmanagers[command.taskmanager_id].commanded[command.slot_index]

    def of_job(self, job_id: str) -> int:
        """Slots that the job has or will have in a moment."""
        return sum(manager.of_job(job_id) for manager in self.taskmanagers.values())

    @property
    def total(self) -> int:
        return sum(len(manager.report.slots) for manager in self.taskmanagers.values())

    @property
    def free(self) -> int:
        return sum(len(manager.free()) for manager in self.taskmanagers.values())
