"""Rows that wait until they are due, on disk when memory is short.

Above the slot's limit the oldest rows in memory (``MemoryRows``) are sorted by the whole order and
written to a ``SpilledRun``. What is due of the runs comes back merged, in pieces that fit into memory.

Rows never change: a cut holds on to them and copies nothing. Runs follow one another in order
of arrival, so that equal rows come out, and lie in snapshots, as they came.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.sorting import sort_indices
from penstock.state.allocators import release_memory
from penstock.state.key_groups import GivenAway, KeyGroups
from penstock.state.keyed_state import rows_of_keys
from penstock.state.log_changes import LogChanges
from penstock.state.memory_rows import MemoryRows
from penstock.state.merging import Stream, merged
from penstock.state.row_log import Part, RowForm
from penstock.state.spilled_run import SpilledRun, SpillFiles
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.snapshots.contract import PendingBlock, RestoredState
    from penstock.state.context import StateContext
    from penstock.state.keyed_state import StateRows
    from penstock.state.waiting_order import WaitingOrder
    from penstock.types.column import Column
    from penstock.types.logical import LogicalType, Schema

#: A run on disk, as a share of the limit and at most; what is much smaller stays in memory.
_RUN_SHARE, _MOST_RUN_BYTES, _LEAST_SHARE = 4, 16 << 20, 8
#: Of a run: a block. Two of each run are in memory while runs are merged: a sixteenth of
#: what lies on disk.
_BLOCKS, _LEAST_BLOCK_BYTES = 32, 16 << 10


class WaitingRows:
    """Rows of ``schema``. ``keys``: columns by which they are partitioned (none: all under one
    key). Row kinds and times are kept too. ``spills`` False: all stay in memory, and are counted.
    ``seen``: is told of rows that came from elsewhere: a snapshot, or another subtask."""

    def __init__(
        self, ctx: StateContext, name: str, schema: Schema, keys: Sequence[int], order: WaitingOrder,
        *, kind: str, spills: bool = True, seen: Callable[[Batch], None] = lambda rows: None,
    ) -> None:  # fmt: skip
        self.name, self.schema, self.order = name, schema, order
        self._form = RowForm(schema, keys, kind, ctx.max_parallelism)
        self._memory, self._seen = ctx.memory, seen
        self._spills = spills and bool(ctx.memory.limit_bytes)
        self._files = SpillFiles(ctx.local_dir / "waiting")
        self._run_bytes = min(max(ctx.memory.limit_bytes // _RUN_SHARE, 1), _MOST_RUN_BYTES)
        self._given_up = 0
        # By age.
        self._spilled: list[SpilledRun] = []
        self._in_memory = MemoryRows(order.times, most_run_bytes=self._run_bytes if self._spills else None)
        self._rows = self._on_disk = 0
        #: Whether there were others than +I among the rows.
        self.mixed = False
        self._changes = LogChanges(ctx.epochs)
        #: The key groups that another subtask owns by now.
        self.given = GivenAway(ctx.max_parallelism, self._sweep, where=ctx.name)
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
        return self._in_memory.nbytes + sum(run.nbytes for run in self._spilled)

    def add(self, batch: Batch, *, checked: bool = True) -> None:
        """``checked``: an error if far too much is held in the end."""
        n = batch.num_rows
        if not n:
            return
        if self.given.any:
            self.given.refuse(self._form.keys(batch), n)
        self.mixed |= batch.kinds is not None
        self._in_memory.add(self._changes.came(batch))
        self._rows += n
        self._make_room()
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
        self.given.finish()
        whole = self._in_memory.whole()
        return Batch.empty(self.schema) if whole is None else whole.batch

    def take_out(self, mask: np.ndarray) -> None:
        """Remove the rows of ``in_memory`` under the mask."""
        if mask.any():
            self._forget(self._in_memory.take_out(mask))

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
        out = self._in_memory.take(limit)
        for part in out:
            self._forget(part)
        return out

    def _batch(self, parts: list[Part]) -> Batch:
        return Part.concat(parts).batch if parts else Batch.empty(self.schema)

    def _forget(self, part: Part) -> None:
        self._rows -= len(part.ids)
        self._changes.went(part)

    # -- room ----------------------------------------------------------------------------

    def evict(self) -> None:
        """See ``KeyedState``."""
        self._make_room()
        self._memory.check()

    def _make_room(self) -> None:
        while self._spills and self._memory.excess(self._holder) > 0 and self._spill():
            pass

    def _spill(self) -> bool:
        """Write the oldest rows in memory, as many as make a run."""
        if self._in_memory.nbytes < self._run_bytes // _LEAST_SHARE:
            return False
        taken, size = self._in_memory.take_oldest(self._run_bytes)
        part = self._in_order(Part.concat(taken))
        del taken
        run = self._run(part)
        self._spilled.append(run)
        self._on_disk += run.rows
        self._given_up += size
        if self._given_up > self._memory.limit_bytes // 2:
            self._given_up = 0
            release_memory()
        return True

    def _run(self, part: Part) -> SpilledRun:
        """Sorted rows on disk."""
        times = self.order.times
        next_time = 0 if times is None else int(times(part.batch.slice(0, 1))[0])
        return SpilledRun(self._files.current(), part, self._block_rows(part), next_time)

    def _in_order(self, part: Part) -> Part:
        return part.take(sort_indices(self.order.columns(part.batch), self.order.order))

    def _block_rows(self, part: Part) -> int:
        size = max(self._run_bytes // _BLOCKS, _LEAST_BLOCK_BYTES)
        return max(1, len(part.ids) * size // part.nbytes)

    # -- snapshots -----------------------------------------------------------------------

    def cut(self) -> dict[str, PendingBlock]:
        """See ``KeyedState``."""
        self.given.finish()
        runs = [(run, run.start) for run in self._spilled]
        return {self.name: self._changes.cut(runs, self._in_memory.parts(), self._form)}

    def restore(self, restored: RestoredState | None) -> None:
        """Rows in the order they came."""
        for batch in () if restored is None else restored.keyed.get(self.name, ()):
            if batch.num_rows:  # of a block in a chain all rows may be out by the newest object
                rows = self._form.read([batch])
                self._seen(rows)
                self.add(rows)

    # -- key groups, from outside --------------------------------------------------------

    @property
    def state_names(self) -> list[str]:
        return [self.name]

    @property
    def key_types(self) -> list[LogicalType]:
        return self._form.key_types

    def live_bytes(self) -> int:
        """See ``KeyedState``."""
        return self.nbytes

    def expire(self, now_ms: int) -> None:
        """See ``KeyedState``: rows go when they are due."""

    def export(self, groups: KeyGroups) -> Iterator[StateRows]:
        """See ``KeyedState``."""
        self.given.refuse_groups(groups)
        return self._exported(groups)

    def lookup(self, keys: Sequence[Column], n: int) -> Iterator[StateRows]:
        """See ``KeyedState``. Looks through all rows."""
        self.given.refuse(keys, n)
        everything = KeyGroups.all(self.given.groups.max_parallelism)
        return rows_of_keys(self._exported(everything), self.key_types, keys, n)

    def absorb(self, groups: KeyGroups, rows: RestoredState) -> None:
        """See ``KeyedState``."""
        self.given.take_back(groups)
        self.restore(rows)

    def mask(self, groups: KeyGroups) -> None:
        """See ``KeyedState``."""
        self.given.mask(groups)

    def drop(self, more: Callable[[], bool]) -> bool:
        """See ``KeyedState``."""
        return self.given.drop(more)

    def _exported(self, groups: KeyGroups) -> Iterator[StateRows]:
        on_disk = (run.blocks(run.start) for run in self._spilled)
        for part in chain(*on_disk, self._in_memory.parts()):
            chosen = self._of(part, groups)
            if chosen.any():
                yield self._form.exported(self.name, part.batch.filter(chosen))

    def _sweep(self, groups: KeyGroups) -> Iterator[None]:
        """Take the rows of these groups out of memory, and write runs on disk anew that have some. What
        is spilled meanwhile from memory comes last."""
        for gone in self._in_memory.without(partial(self._of, groups=groups)):
            self._forget(gone)
            yield
        for spilled in list(self._spilled):
            whole = Part.concat(list(spilled.blocks(spilled.start)))
            masked = self._of(whole, groups)
            if masked.any():
                self._forget(whole.take(np.flatnonzero(masked)))
                self._on_disk -= int(masked.sum())
                rest = whole.take(np.flatnonzero(~masked))
                at = self._spilled.index(spilled)
                self._spilled[at : at + 1] = [self._run(rest)] if len(rest.ids) else []
            yield

    def _of(self, part: Part, groups: KeyGroups) -> np.ndarray:
        """Mask of a part's rows whose key is of these groups."""
        return groups.holds(self._form.keys(part.batch), len(part.ids))


def due_together(
    logs: Sequence[WaitingRows], limit: int | None, *, whole: bool = True
) -> Iterator[list[Batch]]:
    """``WaitingRows.due`` of logs of one order: each piece has the rows of all of them that
    stand between the same places of it (of some of them none)."""
    for log in logs:
        log.given.finish()
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
