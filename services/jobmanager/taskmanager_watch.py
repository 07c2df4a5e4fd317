"""Watches whether the task managers that hold the job's slots still live. Pure.

A resource manager that loses a task manager tells the masters. A new resource manager does not know the
task managers that died together with its predecessor. So when another one leads, the master compares the
task managers whose slots it holds with those that the new one knows, and looks for the missing ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock_services.jobmanager.effects import Effect, FindTaskManagers, LookFor

if TYPE_CHECKING:
    from collections.abc import Iterable

#: How many probes in a row must find no receiver.
PROBES = 2
#: After this many heartbeats all task managers have registered with a new resource manager.
SETTLE_HEARTBEATS = 3


@dataclass(slots=True)
class _Missing:
    since_ms: int
    not_found: int = 0


class TaskManagerWatch:
    """Times are in ms. A task manager that the resource manager does not know counts as lost when the broker
    knows no receiver for it, or after ``heartbeat_timeout_ms``."""

    def __init__(self, heartbeat_interval_ms: int, heartbeat_timeout_ms: int) -> None:
        self._settle_ms = SETTLE_HEARTBEATS * heartbeat_interval_ms
        self._timeout_ms = heartbeat_timeout_ms
        self._epoch: int | None = None
        #: When the resource manager is asked. None: all task managers are known.
        self._due_ms: int | None = None
        self._missing: dict[str, _Missing] = {}

    def answered(self, epoch: int, now_ms: int) -> list[Effect]:
        """The resource manager of this epoch has answered."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._due_ms = now_ms + self._settle_ms
        return [FindTaskManagers()] if self._due_ms is not None and now_ms >= self._due_ms else []

    def known(
        self, held: Iterable[str], registered: frozenset[str], now_ms: int
    ) -> tuple[list[Effect], dict[str, str]]:
        """(effects that look for missing task managers, task manager id → why it is lost).

        ``held``: task managers whose slots the job holds. ``registered``: those that the resource manager
        knows.
        """
        missing = {t: self._missing.get(t) or _Missing(now_ms) for t in set(held) - registered}
        lost = {
            t: f"no heartbeat of it for {now_ms - m.since_ms} ms"
            for t, m in missing.items()
            if now_ms - m.since_ms > self._timeout_ms
        }
        self._missing = {t: m for t, m in missing.items() if t not in lost}
        if not self._missing:
            self._due_ms = None
        return [LookFor(t) for t in sorted(self._missing)], lost

    def looked_for(self, taskmanager_id: str, *, gone: bool) -> str | None:
        """Why the task manager is lost; None if it lives, or if that is not known."""
        missing = self._missing.get(taskmanager_id)
        if missing is None:
            return None
        missing.not_found = missing.not_found + 1 if gone else 0
        if missing.not_found < PROBES:
            return None
        del self._missing[taskmanager_id]
        return "its connection to the broker is gone, and the resource manager of its time as well"
