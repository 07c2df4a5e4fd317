"""The epochs of one task: when a piece of its state was last changed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Epochs:
    """``now``: the epoch of writes; an epoch ends with every cut of a table. ``since``: the
    snapshot that is being taken holds what was written after that epoch (0: everything);
    ``upto``: and nothing later than this one. ``confirmed``: ``upto`` of the last complete
    checkpoint (0: none yet)."""

    now: int = 1
    since: int = 0
    upto: int = 0
    confirmed: int = 0

    @property
    def settled(self) -> int:
        """No delta will ever hold what was written up to this epoch."""
        return max(self.since, self.confirmed)

    def begin(self, since: int) -> int:
        """A barrier: the cuts that follow belong to one snapshot. Returns its ``upto``,
        which is ``since`` for one that builds on it."""
        self.since, self.upto = since, self.now
        return self.upto

    def end(self) -> int:
        """Close the running epoch and return it."""
        self.now += 1
        return self.now - 1
