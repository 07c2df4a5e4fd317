"""Rows that wait until they are due, on disk when memory is short.

New rows lie in the batches they came in. What is left of them when others are due is sorted by
time, so that the next watermark takes a prefix; such runs are merged by fours. Above the
slot's limit the oldest rows are sorted by the whole order and written to a ``SpilledRun``.
What is due of the runs comes back merged, in pieces that fit into memory.

Rows never change: a cut holds on to them and copies nothing. Runs follow one another in order
of arrival, so that equal rows come out, and lie in snapshots, as they came.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.hashing import hash_columns
from penstock.columnar.sorting import sort_indices, stable_argsort
from penstock.jobgraph.specs import SortKey
from penstock.state.allocators import release_memory
from penstock.state.merging import Stream, merged
from penstock.state.row_log import Part, RowForm
from penstock.state.spilled_run import SpilledRun, SpillFiles
from penstock.state.waiting_cut import WaitingCut
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.snapshots.contract import PendingBlock, RestoredState
    from penstock.state.context import StateContext

_LONG = t.BigIntType(False)
#: Runs of one length that are merged together.
_FAN = 4
#: A run on disk, as a share of the limit and at most; what is much smaller stays in memory.
_RUN_SHARE, _MOST_RUN_BYTES, _LEAST_SHARE = 4, 16 << 20, 8
#: Of a run: a block. Two of each run are in memory while runs are merged: a sixteenth of
#: what lies on disk.
_BLOCKS, _LEAST_BLOCK_BYTES = 32, 16 << 10


@dataclass(frozen=True, slots=True)
class WaitingOrder:
    """``columns(rows)``: what they are sorted by, in the ``order`` whose indices count these.
    ``times(rows)``: int64, when each is due: the first column, ascending; None: all are due at
    the end."""

    columns: Callable[[Batch], Sequence[Column]]
    order: Sequence[SortKey]
    times: Callable[[Batch], np.ndarray] | None = None


def by_hash(keys: Sequence[int]) -> WaitingOrder:
    """All are due at the end, those of one key together."""
    return WaitingOrder(lambda rows: [hashed(rows, keys)], (SortKey(0),))


def hashed(rows: Batch, keys: Sequence[int]) -> Column:
    """The hash of each row's key."""
    return Column(_LONG, hash_columns([rows.columns[i] for i in keys]).view(np.int64))


class _MemoryRun:
    """Rows by time; those before ``start`` are gone."""

    __slots__ = ("part", "start", "times")

    def __init__(self, part: Part, times: np.ndarray) -> None:
        self.part, self.times, self.start = part, times, 0

    @property
    def rows(self) -> int:
        return len(self.times) - self.start

    def rest(self) -> Part:
        return self.part.slice(self.start, len(self.times)) if self.start else self.part


class WaitingRows:
    """Rows of ``schema``. ``keys``: columns by which they are partitioned (none: all under one
    key). Row kinds and times are kept too. ``spills`` False: all stay in memory, and are counted."""

    def __init__(
        self, ctx: StateContext, name: str, schema: t.Schema, keys: Sequence[int], order: WaitingOrder,
        *, kind: str, spills: bool = True,
    ) -> None:  # fmt: skip
        self.name, self.schema, self.order = name, schema, order
        self._form = RowForm(schema, keys, kind, ctx.max_parallelism)
        self._epochs, self._memory = ctx.epochs, ctx.memory
        self._spills = spills and bool(ctx.memory.limit_bytes)
        self._files = SpillFiles(ctx.local_dir / "waiting")
        self._run_bytes = min(max(ctx.memory.limit_bytes // _RUN_SHARE, 1), _MOST_RUN_BYTES)
        self._given_up = 0
        # By age: on disk, in memory by time, as they came.
        self._spilled: list[SpilledRun] = []
        self._sorted: list[_MemoryRun] = []
        self._fresh: list[Part] = []
        #: No fresh row is due before.
        self._first_fresh: int | None = None
        self._rows = self._on_disk = self._held = 0
        self._next_id = 0
        #: Whether there were others than +I among the rows.
        self.mixed = False
        #: What was there at a cut; (ids, epoch) of such rows that are gone since the last
        #: confirmed snapshot.
        self._known, self._gone, self._confirmed = 0, list[tuple[np.ndarray, int]](), 0
        self._holder = ctx.memory.add(ctx.name, lambda: self.nbytes, evicts=self._spills)
        ctx.metrics.gauge(f"numRowsOnDisk.{name}", lambda: self._on_disk)

    def __len__(self) -> int:
        return self._rows

    @property
    def on_disk(self) -> int:
        """Rows of which nothing is in memory."""
        return self._on_disk

    @property
    def nbytes(self) -> int:
        """In memory."""
        return self._held + sum(run.nbytes for run in self._spilled)

    def add(self, batch: Batch, *, checked: bool = True) -> None:
        """``checked``: an error if far too much is held in the end."""
        n = batch.num_rows
        if not n:
            return
        self.mixed |= batch.kinds is not None
        ids = np.arange(self._next_id, self._next_id + n)
        self._next_id += n
        part = Part(batch, ids, np.full(n, self._epochs.now, np.int32))
        self._fresh.append(part)
        self._rows += n
        self._held += part.nbytes
        if self.order.times is not None:
            first = int(self.order.times(batch).min())
            self._first_fresh = first if self._first_fresh is None else min(first, self._first_fresh)
        while self._spills and self._memory.excess(self._holder) > 0 and self._spill():
            pass
        if checked:
            self._memory.check()

    def due(self, limit: int | None = None, *, whole: bool = True) -> Iterator[Batch]:
        """Take out the rows that are due until then (None: all), in pieces each of which stands
        after the one before it. ``whole``: rows that are equal in the order are in one piece,
        and must fit into memory. Within a piece only equal ones stand in order: as they came."""
        for [batch] in due_together([self], limit, whole=whole):
            yield batch

    def in_memory(self) -> Batch:
        """All that does not lie on disk, as it came (of a log without times)."""
        if self._fresh:
            self._fresh = [Part.concat(self._fresh)]
        return self._batch(self._fresh)

    def take_out(self, mask: np.ndarray) -> None:
        """Remove the rows of ``in_memory`` under the mask."""
        if not mask.any():
            return
        [whole] = self._fresh
        rest = whole.take(np.flatnonzero(~mask))
        self._forget(whole.take(np.flatnonzero(mask)))
        self._fresh = [rest] if len(rest.ids) else []
        self._held = sum(part.nbytes for part in self._fresh)

    def close(self) -> None:
        self._memory.remove(self._holder)

    # -- what is due ---------------------------------------------------------------------

    def spilled_until(self, limit: int | None) -> bool:
        """Whether rows that are due by then lie on disk."""
        return any(limit is None or run.next_time <= limit for run in self._spilled)

    def streams(self, limit: int | None, of: int) -> list[Stream]:
        """All rows that are due, as ``merged`` takes them."""
        columns = lambda part: self.order.columns(part.batch)  # noqa: E731
        out = [
            Stream(self._due_blocks(run, limit), columns, of, partial(self._passed, run))
            for run in self._spilled
            if limit is None or run.next_time <= limit
        ]
        parts = self._take_memory(limit)
        if parts:
            part = self._in_order(Part.concat(parts))
            rows = self._block_rows(part)
            blocks = (part.slice(at, min(at + rows, len(part.ids))) for at in range(0, len(part.ids), rows))
            out.append(Stream(blocks, columns, of, _ignored))
        return out

    def swept(self) -> None:
        """Runs that came to their end are given up."""
        self._spilled = [run for run in self._spilled if run.start < run.rows]

    def take_due(self, limit: int | None) -> Batch:
        """``due`` where none of it lies on disk."""
        return self._batch(self._take_memory(limit))

    def _due_blocks(self, run: SpilledRun, limit: int | None) -> Iterator[Part]:
        for part in run.blocks(run.start):
            if limit is None:
                yield part
                continue
            assert self.order.times is not None
            times = self.order.times(part.batch)
            n = int(np.searchsorted(times, limit, "right"))
            if n < len(times):
                run.next_time = int(times[n])
                yield part.slice(0, n)
                return
            yield part

    def _passed(self, run: SpilledRun, part: Part) -> None:
        run.start += len(part.ids)
        self._on_disk -= len(part.ids)
        self._forget(part)

    def _take_memory(self, limit: int | None) -> list[Part]:
        """The rows in memory that are due by then, out of here; older ones first."""
        out: list[Part] = []
        if limit is None:
            out = [*(run.rest() for run in self._sorted), *self._fresh]
            self._sorted, self._fresh, self._first_fresh, self._held = [], [], None, 0
        else:
            for run in self._sorted:
                n = int(np.searchsorted(run.times, limit, "right"))
                if n > run.start:
                    out.append(run.part.slice(run.start, n))
                    run.start = n
            self._tidy()
            if self._first_fresh is not None and self._first_fresh <= limit:
                out += self._split_fresh(limit)
        for part in out:
            self._forget(part)
        return out

    def _split_fresh(self, limit: int) -> list[Part]:
        """The due of the fresh rows; the others become a run."""
        assert self.order.times is not None
        whole = Part.concat(self._fresh)
        self._held -= sum(part.nbytes for part in self._fresh)
        self._fresh, self._first_fresh = [], None
        times = self.order.times(whole.batch)
        due = times <= limit
        if due.all():
            return [whole]
        if not due.any():  # what was due first lies on disk by now
            self._fresh, self._first_fresh = [whole], int(times.min())
            self._held += whole.nbytes
            return []
        rest = np.flatnonzero(~due)
        self._add_run(whole.take(rest[stable_argsort(times[rest])]))
        return [whole.take(np.flatnonzero(due))]

    def _add_run(self, part: Part) -> None:
        """Merge runs that are alike, of those which fit into one on disk."""
        assert self.order.times is not None
        runs = self._sorted
        runs.append(_MemoryRun(part, self.order.times(part.batch)))
        self._held += part.nbytes
        while len(runs) >= _FAN and runs[-_FAN].rows < _FAN * runs[-1].rows:
            last = runs[-_FAN:]
            size = sum(run.part.nbytes for run in last)
            if self._spills and size > self._run_bytes:
                return
            whole = Part.concat([run.rest() for run in last])
            whole = whole.take(stable_argsort(self.order.times(whole.batch)))
            runs[-_FAN:] = [_MemoryRun(whole, self.order.times(whole.batch))]
            self._held += whole.nbytes - size

    def _tidy(self) -> None:
        """Give up what was taken from the runs in memory, once it is most of one."""
        kept = []
        for run in self._sorted:
            if run.rows and run.start > run.rows:
                self._held -= run.part.nbytes
                rest = np.arange(run.start, len(run.times))
                run = _MemoryRun(run.part.take(rest), run.times[rest])
                self._held += run.part.nbytes
            if run.rows:
                kept.append(run)
            else:
                self._held -= run.part.nbytes
        self._sorted = kept

    def _batch(self, parts: list[Part]) -> Batch:
        return Part.concat(parts).batch if parts else Batch.empty(self.schema)

    def _forget(self, part: Part) -> None:
        self._rows -= len(part.ids)
        # Epochs ascend with the numbers only within a batch: look at all. What no cut has
        # seen leaves no trace.
        known = part.ids[part.epochs <= self._known] if self._known else part.ids[:0]
        if len(known):
            self._gone.append((known, self._epochs.now))

    # -- room ----------------------------------------------------------------------------

    def _spill(self) -> bool:
        """Write the oldest rows in memory, as many as make a run."""
        if self._held < self._run_bytes // _LEAST_SHARE:
            return False
        taken: list[Part] = []
        size = 0
        while self._sorted and size < self._run_bytes:
            oldest = self._sorted.pop(0)
            taken.append(oldest.rest())
            size += oldest.part.nbytes
        fresh = 0
        while fresh < len(self._fresh) and size < self._run_bytes:
            size += self._fresh[fresh].nbytes
            fresh += 1
        taken += self._fresh[:fresh]
        del self._fresh[:fresh]
        self._held -= size
        part = self._in_order(Part.concat(taken))
        del taken
        times = self.order.times
        next_time = 0 if times is None else int(times(part.batch.slice(0, 1))[0])
        run = SpilledRun(self._files.current(), part, self._block_rows(part), next_time)
        self._spilled.append(run)
        self._on_disk += run.rows
        if not self._fresh:
            self._first_fresh = None
        self._given_up += size
        if self._given_up > self._memory.limit_bytes // 2:
            self._given_up = 0
            release_memory()
        return True

    def _in_order(self, part: Part) -> Part:
        return part.take(sort_indices(self.order.columns(part.batch), self.order.order))

    def _block_rows(self, part: Part) -> int:
        size = max(self._run_bytes // _BLOCKS, _LEAST_BLOCK_BYTES)
        return max(1, len(part.ids) * size // part.nbytes)

    # -- snapshots -----------------------------------------------------------------------

    def cut(self) -> PendingBlock:
        """The log at this moment."""
        since, upto = self._epochs.since, self._epochs.end()
        self._known = upto
        self._confirmed = max(self._confirmed, since)
        self._gone = [(ids, epoch) for ids, epoch in self._gone if epoch > self._confirmed]
        gone = [ids for ids, epoch in self._gone if epoch <= upto]
        parts = [*(run.rest() for run in self._sorted), *self._fresh]
        return WaitingCut([(run, run.start) for run in self._spilled], parts, gone, since, self._form)

    def restore(self, restored: RestoredState, *, seen: Callable[[Batch], None] = lambda rows: None) -> None:
        """Rows in the order they came. ``seen``: is told of them."""
        for batch in restored.keyed.get(self.name, []):
            rows = self._form.read([batch])
            seen(rows)
            self.add(rows)


def due_together(
    logs: Sequence[WaitingRows], limit: int | None, *, whole: bool = True
) -> Iterator[list[Batch]]:
    """``WaitingRows.due`` of logs of one order: each piece has the rows of all of them that
    stand between the same places of it (of some of them none)."""
    if not any(log.spilled_until(limit) for log in logs):
        out = [log.take_due(limit) for log in logs]
        if any(batch.num_rows for batch in out):
            yield out
        return
    order = logs[0].order.order
    streams = [stream for of, log in enumerate(logs) for stream in log.streams(limit, of)]
    for found in merged(streams, order, whole=whole):
        batches = [Batch.empty(log.schema) for log in logs]
        for of, (parts, rows) in enumerate(found):
            if len(rows):
                batches[of] = Batch.concat([p.batch for p in parts]).take(rows)
        if any(batch.num_rows for batch in batches):
            yield batches
    for log in logs:
        log.swept()


def _ignored(part: Part) -> None:
    """It is gone already."""
