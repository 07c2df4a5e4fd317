"""The protocol by which a state table announces changes to the bookkeeping of snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np


class Changes(Protocol):
    """A receiver of the slots (int64) that a state table is about to change."""

    def write(self, slots: np.ndarray) -> None:
        """Called before the rows of these slots are created or changed; slots may repeat."""

    def free(self, slots: np.ndarray) -> None:
        """Called before the rows of these slots are freed."""
