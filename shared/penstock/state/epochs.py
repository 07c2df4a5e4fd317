"""The epochs of one task: they tell when a piece of its state was last changed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Epochs:
    """The epochs of one task.

    ``now``: the epoch of current writes; every cut of a table ends an epoch. ``since`` and ``upto``: the
    snapshot that is being taken holds what was written after ``since`` (0: everything) and not after
    ``upto``. ``confirmed``: ``upto`` of the last complete checkpoint (0: none yet).
    """

    now: int = 1
    since: int = 0
    upto: int = 0
    confirmed: int = 0

    @property
    def settled(self) -> int:
        """The epoch up to which no later delta holds what was written."""
        return max(self.since, self.confirmed)

    def begin(self, since: int) -> int:
        """Called at a barrier: the cuts that follow belong to one snapshot. Returns its ``upto``, which is
        the ``since`` of a snapshot that builds on it."""
        self.since, self.upto = since, self.now
        return self.upto

    def end(self) -> int:
        """Ends the current epoch and returns it."""
        self.now += 1
        return self.now - 1
