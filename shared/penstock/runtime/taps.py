"""Taps: a sample of the rows that leave a slot over an edge, for whoever asked lately.

A tap hangs on the writers of the edge while somebody listens; without one a writer does nothing for it. What is sampled
are copies of rows. Looking takes at most ``SHARE`` of the time, and its failure is no failure of the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.messages.taps import EdgeTapped, TappedRow
from penstock.runtime.sampled_rows import Reservoir
from penstock.runtime.shown_rows import shower
from penstock.types.batch import NO_TIME, RowKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from penstock.messages.taps import Tap, TapEdge
    from penstock.runtime.outputs import EdgeWriter
    from penstock.types.batch import Batch

#: The share of the time that looking at rows may take in a slot, and the seconds that it may take at once.
SHARE, AT_ONCE_S = 0.004, 0.004
#: Bounds, so that no request holds the slot's thread or its memory for long.
MAX_TAPS, MAX_ROWS, MAX_LEASE_MS = 8, 200, 30_000


class Budget:
    """The seconds that looking may take now. What was taken too much is saved before it may go on."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        self.time_s = time_s
        self._left_s = AT_ONCE_S
        self._at_s = time_s()

    def left(self, now_s: float) -> bool:
        """Whether looking may go on."""
        self._left_s = min(AT_ONCE_S, self._left_s + SHARE * (now_s - self._at_s))
        self._at_s = now_s
        return self._left_s > 0

    def spend(self, began_s: float) -> None:
        """Looking began at ``began_s`` and has ended."""
        self._left_s -= self.time_s() - began_s


@dataclass(frozen=True, slots=True)
class Writers:
    """The writers of one edge in this slot, by subtask."""

    columns: tuple[tuple[str, str], ...]
    by_subtask: tuple[tuple[int, EdgeWriter], ...]


class EdgeTap:
    """One tap on the writers of one edge."""

    def __init__(self, tap: Tap, writers: Writers, budget: Budget, random: Random) -> None:
        self.until_s = 0.0
        self.failure = ""
        self._rows = min(max(1, tap.rows), MAX_ROWS)
        self._hidden = tap.hidden
        self.edge_id = tap.edge_id
        self._writers = writers
        self._budget = budget
        self._random = random
        self._begin()
        self._hooks = [(writer, partial(self._look, subtask)) for subtask, writer in writers.by_subtask]
        for writer, hook in self._hooks:
            writer.taps = (*writer.taps, hook)

    def _begin(self) -> None:
        self._reservoir = Reservoir(self._rows, self._random)
        self._unseen = 0
        #: Place → (number of the row, its subtask, a batch, and the row in that batch).
        self._kept: dict[int, tuple[int, int, Batch, int]] = {}

    def close(self) -> None:
        """Looks no more."""
        for writer, hook in self._hooks:
            writer.taps = tuple(other for other in writer.taps if other is not hook)
        self._hooks = []

    def _look(self, subtask: int, batch: Batch) -> None:
        began_s = self._budget.time_s()
        if not self._budget.left(began_s):
            self._unseen += batch.num_rows
            return
        try:
            self._sample(subtask, batch)
        except Exception as err:
            self._fail(err)
        self._budget.spend(began_s)

    def _sample(self, subtask: int, batch: Batch) -> None:
        before = self._reservoir.seen
        chosen = dict(self._reservoir.offer(batch.num_rows))
        if chosen:
            rows = list(chosen.values())
            copies = batch.take(np.array(rows, np.int64))
            for i, (place, row) in enumerate(chosen.items()):
                self._kept[place] = before + row, subtask, copies, i

    def _fail(self, err: Exception) -> None:
        self.failure = f"the rows cannot be looked at: {type(err).__name__}: {err}"[:500]
        self.close()

    def taken(self, request_id: str) -> EdgeTapped:
        """The rows since the last call."""
        began_s = self._budget.time_s()
        reservoir, unseen, kept = (
            self._reservoir,
            self._unseen,
            sorted(self._kept.values(), key=lambda k: k[0]),
        )
        self._begin()
        rows: list[TappedRow] = []
        try:
            rows = [self._shown(subtask, batch, i) for _, subtask, batch, i in kept]
        except Exception as err:
            self._fail(err)
        self._budget.spend(began_s)
        return EdgeTapped(
            request_id=request_id,
            columns=self._writers.columns,
            rows=tuple(rows),
            passed=reservoir.seen,
            unseen=unseen,
            failure=self.failure,
        )

    def _shown(self, subtask: int, batch: Batch, i: int) -> TappedRow:
        row = batch.slice(i, 1)
        time_us = None if row.times is None or row.times[0] == NO_TIME else int(row.times[0])
        kind, values = next(iter(row.rows()))
        show = shower(batch.schema, self._hidden)
        return TappedRow(subtask=subtask, kind=RowKind(kind).short, time_us=time_us, values=show(values))


class Taps:
    """The taps of one slot."""

    def __init__(self, time_s: Callable[[], float], random: Random) -> None:
        self._time_s = time_s
        self._budget = Budget(time_s)
        self._random = random
        self._taps: dict[str, EdgeTap] = {}

    def pull(self, asked: TapEdge, writers: Mapping[str, Writers]) -> EdgeTapped:
        """The rows since the tap's last request; of a new tap none. ``writers``: edge id → its writers in this slot."""
        tap = asked.tap
        open_ = self._taps.get(tap.tap_id)
        if open_ is None and tap.lease_ms > 0:
            of_edge = writers.get(tap.edge_id)
            if of_edge is None:
                return EdgeTapped(request_id=asked.request_id)  # no subtask here sends over the edge
            if len(self._taps) >= MAX_TAPS:
                failure = f"{MAX_TAPS} taps are open in the slot already; close one"
                return EdgeTapped(request_id=asked.request_id, failure=failure)
            open_ = self._taps[tap.tap_id] = EdgeTap(tap, of_edge, self._budget, self._random)
        if open_ is None:
            return EdgeTapped(request_id=asked.request_id)
        open_.until_s = self._time_s() + min(tap.lease_ms, MAX_LEASE_MS) / 1000
        found = open_.taken(asked.request_id)
        if tap.lease_ms <= 0:
            self._end(tap.tap_id)
        return found

    def expire(self) -> None:
        """Ends the taps for which nobody has asked lately."""
        if self._taps:
            now_s = self._time_s()
            for tap_id in [tap_id for tap_id, tap in self._taps.items() if tap.until_s < now_s]:
                self._end(tap_id)

    def _end(self, tap_id: str) -> None:
        self._taps.pop(tap_id).close()


def writers_of(edges: Sequence[tuple[str, Any, int, EdgeWriter]]) -> dict[str, Writers]:
    """(edge id, schema, subtask, writer) of each writer in a slot, as ``Taps.pull`` takes them."""
    found: dict[str, Writers] = {}
    for edge_id, schema, subtask, writer in edges:
        columns = tuple((f.name, str(f.type)) for f in schema.fields)
        before = found[edge_id].by_subtask if edge_id in found else ()
        found[edge_id] = Writers(columns, (*before, (subtask, writer)))
    return found
