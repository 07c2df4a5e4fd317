"""Records which rows of a log came and went, and cuts a log at a barrier.

State is cut in two ways: rows by slot with ``SlotChanges``, logs with this module. Each row of a log has
its own number, by which a later delta identifies it, and the epoch in which it came. Rows never change, so
a cut copies nothing: it refers to batches in memory and to runs on disk, which the writer of the snapshot
reads some MiB at a time. A row that came and went between two cuts leaves no trace.
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
    """Gives numbers to the rows of a log, and records which are gone."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._next_id = 0
        #: The last epoch that a cut contains; 0 before the first cut.
        self._known = 0
        self._gone = GoneRows(epochs)

    def came(self, batch: Batch) -> Part:
        """The rows of ``batch`` with new numbers."""
        n = batch.num_rows
        ids = np.arange(self._next_id, self._next_id + n)
        self._next_id += n
        return Part(batch, ids, np.full(n, self._epochs.now, np.int32))

    def went(self, part: Part) -> None:
        """Records that these rows are gone."""
        # The epochs ascend only within a batch, so all of them are compared.
        if self._known:
            self._gone.add(part.ids[part.epochs <= self._known])

    def cut(self, runs: list[tuple[SpilledRun, int]], parts: list[Part], form: RowForm) -> LogCut:
        """The log at this moment. ``runs``: on disk, with the first row of each that is left; ``parts``: in
        memory; both in order of arrival."""
        since, upto = self._epochs.since, self._epochs.end()
        self._known = upto
        return LogCut(runs, parts, self._gone.since(since, upto), since, form)


class LogCut(PendingBlock):
    """The cut of a log. ``gone``: arrays of the numbers of rows that are gone; ``since``: see ``Epochs``."""

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
        """The rows of the cut, oldest first. Each is released once it has been yielded."""
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
        """The block with the marks of a delta. Rows never change, so a delta only removes those that are
        gone."""
        if self._since:
            gone = distinct(np.concatenate(self._gone)) if self._gone else np.empty(0, np.int64)
            block.delta, block.touched = True, gone
        return block
