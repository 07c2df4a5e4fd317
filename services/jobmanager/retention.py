"""Which completed checkpoints are kept, and when the objects of an old one may be deleted. Pure.

An old checkpoint is dropped only when every slot has confirmed its successor: until then a task may still
build its next delta on the old one. Nor is it dropped while a checkpoint is in flight that was triggered
before that, because some of its snapshots may be deltas to the old one. No delta builds on a savepoint.

A checkpoint that cannot be read is not restored any more, but its objects stay until a newer one has
completed: if none completes, they are all that is left.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock_services.jobmanager.effects import DeleteObjects
from penstock_services.jobmanager.independence import Fallback

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock_services.jobmanager.checkpoints import Completed
    from penstock_services.jobmanager.effects import Command, Effect


class Retention:
    """The completed checkpoints of one job. ``retained``: oldest first."""

    def __init__(self, num_retained: int) -> None:
        self._num_retained = num_retained
        self.retained: deque[Completed] = deque()
        #: Ids of checkpoints that could not be read.
        self._unreadable: set[int] = set()
        self._fallback = Fallback()
        #: Ids of the commands that announce the last completion and are not answered yet.
        self._unanswered: set[str] = set()
        self._unheard = False
        self._told_id = 0
        #: The next delta of every task builds on this checkpoint or on a later one, if on any.
        self.floor = 0

    def inherit(self, completed: Iterable[Completed]) -> None:
        """Takes over the checkpoints of an earlier master, oldest first. It is not known on which of them the
        tasks build."""
        self.retained.extend(completed)
        if self._num_retained > 1:
            more = list(self.retained)[: -self._num_retained]
            self._fallback = Fallback(*[c.checkpoint_id for c in more if c.kind == "checkpoint"][:2])

    @property
    def last(self) -> Completed | None:
        """The newest checkpoint to restore from."""
        return next(reversed(self._readable), None)

    @property
    def _readable(self) -> list[Completed]:
        return [c for c in self.retained if c.checkpoint_id not in self._unreadable]

    def discredit(self, checkpoint_id: int) -> Completed | None:
        """Marks a checkpoint as unreadable, so that nothing is restored from it. Returns None if it is not
        retained."""
        found = self._find(checkpoint_id)
        if found is not None:
            self._unreadable.add(checkpoint_id)
        return found

    def _find(self, checkpoint_id: int) -> Completed | None:
        return next((c for c in self._readable if c.checkpoint_id == checkpoint_id), None)

    def complete(self, completed: Completed) -> None:
        """A checkpoint is in the log."""
        self._fallback = self._fallback_after(completed)
        self.retained.append(completed)

    def kept_beside(self, completed: Completed) -> tuple[int, ...]:
        """Ids of the older checkpoints that a reader of the log may restore once ``completed`` is in it. They
        include those that only wait for confirmations."""
        fallback, dropped = self._fallback_after(completed), self._fallback.kept
        return tuple(
            c.checkpoint_id
            for c in self._readable
            if c.checkpoint_id != dropped or dropped in fallback or c in self._newest(self._num_retained - 1)
        )

    def _fallback_after(self, newest: Completed) -> Fallback:
        # With one retained checkpoint the user wants no other.
        if self._num_retained < 2 or newest.kind != "checkpoint":
            return self._fallback
        return self._fallback.after(newest, self._find(self._fallback.held))

    def told(self, checkpoint_id: int, commands: Iterable[Command]) -> None:
        """These commands announce to the slots that this checkpoint, the newest, is complete."""
        self._told_id = checkpoint_id
        self._unanswered = {c.message.command_id for c in commands}
        self._unheard = False

    def lost(self, command_id: str) -> None:
        """One of the commands did not arrive. That slot is told with the next completion."""
        if command_id in self._unanswered:
            self._unheard = True
            self._unanswered.discard(command_id)

    def heard(self, command_id: str) -> bool:
        """A slot has confirmed. Returns True if it was the last."""
        if command_id not in self._unanswered:
            return False
        self._unanswered.discard(command_id)
        return self.all_heard

    @property
    def all_heard(self) -> bool:
        """Whether every slot has confirmed the newest checkpoint."""
        return not self._unanswered and not self._unheard

    def named(self) -> set[str]:
        """The keys of all objects that a retained manifest names."""
        return {key for c in self.retained for key in c.manifest.object_keys()}

    def subsume(self, also_named: set[str], floors: Iterable[int] = ()) -> list[Effect]:
        """Drops the oldest checkpoints beyond those to keep. Call it when all slots have confirmed.

        ``also_named``: keys of other objects in use. ``floors``: those of the checkpoints in flight. (A
        savepoint is a copy; the checkpoint that the job keeps beside it is treated as the others, except
        that no delta builds on it.)
        """
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

    def _newest(self, count: int) -> list[Completed]:
        return self._readable[-count:] if count > 0 else []

    def _droppable(self, floors: Iterable[int]) -> list[Completed]:
        floor = min((self.floor, *floors))
        newest = self._newest(self._num_retained)
        kept = [*newest, *(c for c in self._readable if c.checkpoint_id in self._fallback)]
        return [
            c
            for c in self.retained
            if c not in kept
            and (c.kind != "checkpoint" or c.checkpoint_id < floor)
            and any(n.checkpoint_id > c.checkpoint_id for n in newest)
        ]

    def problems(self, floors: Iterable[int] = ()) -> list[str]:
        """What contradicts the rules above, for ``validate_state``."""
        ids = [c.checkpoint_id for c in self.retained]
        found = []
        if ids != sorted(set(ids)):
            found.append(f"retained checkpoints are out of order: {ids}")
        if self.all_heard and self._droppable(floors):
            found.append(f"more than {self._num_retained} retained: {ids} ({self._fallback})")
        return found
