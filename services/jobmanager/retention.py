"""Which completed checkpoints are kept, and when an old one's objects may go. Pure.

An old checkpoint is dropped only when every slot has taken the word that its successor is
complete: a task that has not may still write its next change set on top of the old one.
Nor while one is in flight that was triggered before that: some of its snapshots may be
deltas to the old one. Nothing builds on a savepoint.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from services.jobmanager.effects import DeleteObjects

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.jobmanager.checkpoints import Completed
    from services.jobmanager.effects import Command, Effect


class Retention:
    """``retained``: oldest first."""

    def __init__(self, num_retained: int) -> None:
        self._num_retained = num_retained
        self.retained: deque[Completed] = deque()
        #: commands (ids) that tell of the last completion and are not answered yet
        self._unanswered: set[str] = set()
        self._unheard = False
        self._told_id = 0
        #: every task's next delta builds on this checkpoint or a later one, if on any
        self.floor = 0

    def inherit(self, completed: Iterable[Completed]) -> None:
        """Of an earlier master, oldest first: on which of them its tasks build is not known."""
        self.retained.extend(completed)

    @property
    def last(self) -> Completed | None:
        """The newest one to restore from."""
        return self.retained[-1] if self.retained else None

    def discredit(self, checkpoint_id: int) -> Completed | None:
        """It cannot be read: nothing is restored from it any more. None: not retained."""
        found = next((c for c in self.retained if c.checkpoint_id == checkpoint_id), None)
        if found is not None:
            self.retained = deque(c for c in self.retained if c is not found)
        return found

    def told(self, checkpoint_id: int, commands: Iterable[Command]) -> None:
        """These tell the slots that this one, the newest, is complete."""
        self._told_id = checkpoint_id
        self._unanswered = {c.message.command_id for c in commands}
        self._unheard = False

    def lost(self, command_id: str) -> None:
        """One of them did not arrive: the next completion tells that slot."""
        if command_id in self._unanswered:
            self._unheard = True
            self._unanswered.discard(command_id)

    def heard(self, command_id: str) -> bool:
        """True when it was the last one that was waited for."""
        if command_id not in self._unanswered:
            return False
        self._unanswered.discard(command_id)
        return self.all_heard

    @property
    def all_heard(self) -> bool:
        return not self._unanswered and not self._unheard

    def named(self) -> set[str]:
        """Every object that a retained manifest names."""
        return {key for c in self.retained for key in c.manifest.object_keys()}

    def subsume(self, also_named: set[str], floors: Iterable[int] = ()) -> list[Effect]:
        """Drop the oldest checkpoints beyond those to keep; call when all slots have heard.
        ``floors``: of the checkpoints in flight. (A savepoint is a copy; what the job keeps of
        it is a checkpoint like the others, but none that deltas build on.)"""
        if any(c.checkpoint_id == self._told_id and c.kind == "checkpoint" for c in self.retained):
            self.floor = self._told_id
        dropped = self._droppable(floors)
        if not dropped:
            return []
        self.retained = deque(c for c in self.retained if c not in dropped)
        named = self.named() | also_named
        keys = {c.manifest_key for c in dropped}
        keys |= {key for c in dropped for key in c.manifest.object_keys() if key not in named}
        return [DeleteObjects(frozenset(keys))]

    def _droppable(self, floors: Iterable[int]) -> list[Completed]:
        floor = min((self.floor, *floors))
        return [
            c
            for c in list(self.retained)[: -self._num_retained]
            if c.kind != "checkpoint" or c.checkpoint_id < floor
        ]

    def problems(self, floors: Iterable[int] = ()) -> list[str]:
        ids = [c.checkpoint_id for c in self.retained]
        found = []
        if ids != sorted(set(ids)):
            found.append(f"retained checkpoints are out of order: {ids}")
        if self.all_heard and self._droppable(floors):
            found.append(f"more than {self._num_retained} retained: {ids}")
        return found
