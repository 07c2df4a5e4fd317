"""Whoever is told which rows by slot are about to change: a snapshot's bookkeeping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np


class Changes(Protocol):
    def write(self, slots: np.ndarray) -> None:
        """Called before rows of these slots (repeats allowed) are made or changed."""

    def free(self, slots: np.ndarray) -> None:
        """Called before rows of these slots are given up."""
