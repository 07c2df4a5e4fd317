"""Which rows of a log came and went, and the cut of a log at a barrier.

This is the second of the two ways in which state is cut: rows by slot have ``SlotChanges``. Each row of
a log has a number of its own, by which a later delta knows it, and the epoch in which it came. Rows
never change, so a cut copies nothing: it holds on to batches in memory and runs on disk, which whoever
writes the snapshot reads some MiB at a time. A row that came and went between two cuts leaves no trace.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.grouping import distinct
from penstock.snapshots.contract import PendingBlock
from penstock.state.row_log import Part
from penstock.state.tables import RUN_BYTES, GoneRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.snapshots.contract import KeyedBlock
    from penstock.state.epochs import Epochs
    from penstock.state.row_log import RowForm
    from penstock.state.spilled_run import SpilledRun
    from penstock.types.batch import Batch


class LogChanges:
    """The numbers of a log's rows."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._next_id = 0
        #: The last epoch that a cut has seen; 0 before the first.
        self._known = 0
        self._gone = GoneRows(epochs)

    def came(self, batch: Batch) -> Part:
        """Rows that are new."""
        n = batch.num_rows
        ids = np.arange(self._next_id, self._next_id + n)
        self._next_id += n
        return Part(batch, ids, np.full(n, self._epochs.now, np.int32))

    def went(self, part: Part) -> None:
        """These rows are gone."""
        # Epochs ascend with the numbers only within a batch: look at all.
        if self._known:
            self._gone.add(part.ids[part.epochs <= self._known])

    def cut(self, runs: list[tuple[SpilledRun, int]], parts: list[Part], form: RowForm) -> LogCut:
        """The log at this moment. ``runs``: on disk, with the first row of each that stands; ``parts``:
        in memory; all of them in order of arrival."""
        since, upto = self._epochs.since, self._epochs.end()
        self._known = upto
        return LogCut(runs, parts, self._gone.since(since, upto), since, form)


class LogCut(PendingBlock):
    """``gone``: numbers of rows that are gone; ``since``: see ``Epochs``."""

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
