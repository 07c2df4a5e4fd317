"""Rows that wait as they stood at a barrier, in memory and on disk: what a snapshot writes.

Rows never change, so nothing is copied: parts and runs are held on to, and read by whoever
writes the snapshot, some MiB at a time.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.snapshots.contract import PendingBlock
from penstock.state.tables import RUN_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.snapshots.contract import KeyedBlock
    from penstock.state.row_log import Part, RowForm
    from penstock.state.spilled_run import SpilledRun


class WaitingCut(PendingBlock):
    """``runs``: with the first row of each that stands; ``parts``: those in memory, all of them
    in order of arrival. ``gone``: numbers of rows that are gone; ``since``: see ``Epochs``."""

    def __init__(
        self,
        runs: list[tuple[SpilledRun, int]],
        parts: list[Part],
        gone: list[np.ndarray],
        since: int,
        form: RowForm,
    ) -> None:
        self._runs, self._parts, self._gone = runs, parts, gone
        self._since, self._form = since, form

    def copy(self, more: Callable[[], bool]) -> bool:
        return True

    def discard(self) -> None:
        self._runs, self._parts, self._gone = [], [], []

    def block(self) -> KeyedBlock:
        return self._described(self._form.block(list(self._rows()), sort=not self._since))

    def pieces(self) -> Iterator[KeyedBlock]:
        run: list[Part] = []
        first, size = True, 0
        for part in chain(self._rows(), (None,)):
            if part is not None:
                run.append(part)
                size += part.nbytes
            if size >= RUN_BYTES or (part is None and (run or first)):
                block = self._form.block(run, sort=not self._since)
                yield self._described(block) if first else block
                first, run, size = False, [], 0

    def _rows(self) -> Iterator[Part]:
        """The rows of the cut, oldest first; they are given up on the way."""
        while self._runs:
            run, start = self._runs.pop(0)
            if run.last_epoch > self._since:
                for part in run.blocks(start):
                    yield from self._newer(part)
        while self._parts:
            yield from self._newer(self._parts.pop(0))

    def _newer(self, part: Part) -> Iterator[Part]:
        newer = part.epochs > self._since
        if newer.all():
            yield part
        elif newer.any():
            yield part.take(np.flatnonzero(newer))

    def _described(self, block: KeyedBlock) -> KeyedBlock:
        """Rows never change: a delta only takes back those that are gone."""
        if self._since:
            gone = distinct(np.concatenate(self._gone)) if self._gone else np.empty(0, np.int64)
            block.delta, block.touched = True, gone
        return block
