"""The epochs of one task: when a piece of its state was last changed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Epochs:
    """``now``: the epoch of writes; ``since``: the next snapshot holds what was written
    after that epoch (0: everything). An epoch ends with every cut of a table."""

    now: int = 1
    since: int = 0

    def end(self) -> int:
        """Close the running epoch and return it."""
        self.now += 1
        return self.now - 1
