"""Rows that wait until they are due, on disk if memory is short.

Above the slot's limit the oldest rows in memory (``MemoryRows``) are sorted and written to a
``SpilledRun``. Rows of the runs that are due are merged in pieces that fit into memory.

Rows never change, so a cut refers to them and copies nothing. Runs follow one another in order of arrival,
so that equal rows come out, and are stored in snapshots, in the order in which they came.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from penstock.columnar.sorting import sort_indices
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

#: The size of a run on disk: the limit divided by the first, at most so many bytes. Rows of less than the
#: size divided by the third stay in memory.
_RUN_SHARE, _MOST_RUN_BYTES, _LEAST_SHARE = 8, 16 << 20, 8
#: Rows in memory are sorted and copied in pieces of this share of a run, because both have them there twice.
_PIECE_SHARE = 4
#: The number of blocks of a run, and the least size of a block. While runs are merged two blocks of each are
#: in memory: a sixty-fourth of what is on disk.
_BLOCKS, _LEAST_BLOCK_BYTES = 128, 16 << 10


class WaitingRows:
    """A log of rows of ``schema``, with their row kinds and event times; see ``KeyedState``.

    ``keys``: the columns by which they are partitioned (none: one key). ``spills`` False: all rows stay in
    memory, and are counted. ``seen`` is called with rows that come from a snapshot or from another
    subtask.
    """

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
        # Oldest first.
        self._spilled: list[SpilledRun] = []
        #: Bytes of rows that are sorted together in memory; None: all.
        self._piece_bytes = max(self._run_bytes // _PIECE_SHARE, 1) if self._spills else None
        self._in_memory = MemoryRows(order.times, most_run_bytes=self._piece_bytes)
        self._rows = self._on_disk = 0
        #: Bytes of rows that were in memory and are being merged with those on disk.
        self._merging = 0
        #: Whether there were rows of another kind than +I.
        self.mixed = False
        self._changes = LogChanges(ctx.epochs)
        #: The key groups that have been given to another subtask.
        self.given = GivenAway(ctx.max_parallelism, self._sweep, where=ctx.name)
        self._holder = ctx.memory.add(ctx.name, lambda: self.nbytes, evicts=self._spills)
        ctx.metrics.gauge(f"numRowsOnDisk.{name}", lambda: self._on_disk)

    def __len__(self) -> int:
        """The number of rows, in memory and on disk."""
        return self._rows

    @property
    def on_disk(self) -> int:
        """The number of rows on disk."""
        return self._on_disk

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self._in_memory.nbytes + self._merging + sum(run.nbytes for run in self._spilled)

    def add(self, batch: Batch, *, checked: bool = True) -> None:
        """Adds rows. Raises InternalError if a key was given away and, if ``checked``, ExternalError if far
        too much memory is used."""
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
        """Removes and yields the rows that are due not after ``limit`` (None: all). All rows of a piece come
        after those of the piece before. ``whole``: rows that are equal in the order are in one piece, and
        must fit into memory. Within a piece only equal rows are in order: as they came."""
        for [batch] in due_together([self], limit, whole=whole):
            yield batch

    def in_memory(self) -> Batch:
        """All rows that are not on disk, as they came. Only for a log without times."""
        self.given.finish()
        whole = self._in_memory.whole()
        return Batch.empty(self.schema) if whole is None else whole.batch

    def take_out(self, mask: np.ndarray) -> None:
        """Removes the rows of ``in_memory`` under the mask."""
        if mask.any():
            self._forget(self._in_memory.take_out(mask))

    def close(self) -> None:
        """Gives back the claim on the slot's memory."""
        self._memory.remove(self._holder)

    # -- what is due ---------------------------------------------------------------------

    def in_pieces(self, limit: int | None) -> bool:
        """Whether the rows that are due not after ``limit`` may be on disk, or too many to be in memory twice."""
        if self._spills and self._in_memory.nbytes > self._run_bytes:
            return True
        return any(limit is None or run.next_time <= limit for run in self._spilled)

    def streams(self, limit: int | None, of: int) -> list[Stream]:
        """All rows that are due, as streams for ``merged``."""
        columns = lambda part: self.order.columns(part.batch)  # noqa: E731
        out = [
            Stream(self._due_blocks(run, limit), columns, of, partial(self._passed, run))
            for run in self._spilled
            if limit is None or run.next_time <= limit
        ]
        parts = self._take_memory(limit)
        parts.reverse()
        while parts:
            part = self._in_order(Part.concat(_some(parts, self._piece_bytes)))
            self._merging += part.nbytes
            self._holder.evicts = False  # others evict meanwhile
            each = part.nbytes // len(part.ids)
            out.append(
                Stream(_slices(part, self._block_rows(part)), columns, of, partial(self._merged, each))
            )
        return out

    def came_out(self, batch: Batch) -> None:
        """Records that rows were merged, which leaves free memory behind."""
        if self._spills:
            self._memory.moved(batch.nbytes)

    def swept(self) -> None:
        """Releases runs that have been read to their end, after all streams were."""
        self._merging, self._holder.evicts = 0, self._spills
        self._spilled = [run for run in self._spilled if run.start < run.rows]

    def take_due(self, limit: int | None) -> Batch:
        """As ``due``, if it need not be done in pieces."""
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

    def _merged(self, row_bytes: int, part: Part) -> None:
        self._merging -= row_bytes * len(part.ids)

    def _passed(self, run: SpilledRun, part: Part) -> None:
        run.start += len(part.ids)
        self._on_disk -= len(part.ids)
        self._forget(part)

    def _take_memory(self, limit: int | None) -> list[Part]:
        """Removes and returns the rows in memory that are due, older ones first."""
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
        """Writes the oldest rows in memory, as many as make a run. Returns False if there are too few."""
        if self._in_memory.nbytes < max(1, self._run_bytes // _LEAST_SHARE):
            return False
        taken, size = self._in_memory.take_oldest(self._run_bytes)
        whole = Part.concat(taken)
        del taken
        run = self._run(self._in_order(whole))
        self._spilled.append(run)
        self._on_disk += run.rows
        self._memory.moved(size)
        return True

    def _run(self, part: Part) -> SpilledRun:
        """A run on disk with these sorted rows."""
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
        """Loads restored rows in the order in which they came."""
        for batch in () if restored is None else restored.keyed.get(self.name, ()):
            if batch.num_rows:  # the newest object of a chain may have removed all rows of a block
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
        """See ``KeyedState``. Does nothing: rows leave when they are due."""

    def export(self, groups: KeyGroups) -> Iterator[StateRows]:
        """See ``KeyedState``."""
        self.given.refuse_groups(groups)
        return self._exported(groups)

    def lookup(self, keys: Sequence[Column], n: int) -> Iterator[StateRows]:
        """See ``KeyedState``. Scans all rows."""
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
        """Removes the rows of these groups from memory, and rewrites runs on disk that contain some. Runs
        that are written meanwhile come last."""
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
        """Mask of the rows of a part whose key is in these groups."""
        return groups.holds(self._form.keys(part.batch), len(part.ids))


def due_together(
    logs: Sequence[WaitingRows], limit: int | None, *, whole: bool = True
) -> Iterator[list[Batch]]:
    """``WaitingRows.due`` of several logs with the same order. Each piece has, for every log, the rows
    between the same two places of the order (maybe none)."""
    for log in logs:
        log.given.finish()
    if not any(log.in_pieces(limit) for log in logs):
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
                logs[of].came_out(batches[of])
        if any(batch.num_rows for batch in batches):
            yield batches
    for log in logs:
        log.swept()


def _some(parts: list[Part], nbytes: int | None) -> list[Part]:
    """Removes about ``nbytes`` of rows from the end of ``parts`` (None: all) and returns them, the last first."""
    out = [parts.pop()]
    size = out[0].nbytes
    while parts and (nbytes is None or size + parts[-1].nbytes <= nbytes):
        out.append(parts.pop())
        size += out[-1].nbytes
    return out


def _slices(part: Part, rows: int) -> Iterator[Part]:
    for at in range(0, len(part.ids), rows):
        yield part.slice(at, min(at + rows, len(part.ids)))
