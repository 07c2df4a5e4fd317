"""Bounded OVER frames: aggregates of the last rows, or of the last while, of each partition.

The rows that later frames look back to are kept by partition, and go to the disk with it. Those of
a RANGE frame go when the time is behind that later rows look back to, wherever they lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from penstock.columnar.frames import Layout
from penstock.columnar.grouping import distinct
from penstock.columnar.sorting import changes, group_bounds, stable_argsort
from penstock.columnar.store import grown
from penstock.operators.emitting import clamp_watermark
from penstock.operators.joining import bounded_slices
from penstock.operators.operator import MAX_WATERMARK
from penstock.snapshots.keyed_blocks import restored_columns
from penstock.state.aggregates import AggregateSet
from penstock.state.ranked_rows import RankedRows
from penstock.state.row_log import RowForm
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from penstock.columnar.key_index import KeyIndex
    from penstock.functions.expr import AggregateCall
    from penstock.jobgraph.specs import OverSpec
    from penstock.operators.operator import OperatorContext
    from penstock.state.cold_tier import MovableTable

_LONG = t.BigIntType(False)
#: Rows of frames that are aggregated at a time.
_PAIRS = 262_144
#: A row's time on disk, where times are positive.
_TIME_ZERO_US = 1 << 62


def first_peers(spec: OverSpec, columns: Sequence[Column], slots: np.ndarray) -> np.ndarray:
    """The first row that is equal in the order; rows are sorted by partition and order."""
    return Layout.of(columns, spec.order, slots).peers_low


def last_peers(spec: OverSpec, columns: Sequence[Column], slots: np.ndarray) -> np.ndarray:
    """Row whose frame a row shares: itself, or for RANGE its last peer in the order."""
    n = len(slots)
    if spec.frame == "rows" or not spec.order:
        return np.arange(n)
    opens = changes(columns, spec.order, np.arange(n))
    opens[1:] |= slots[1:] != slots[:-1]
    first = np.flatnonzero(opens)
    return (np.append(first[1:], n) - 1)[np.cumsum(opens) - 1]


def _narrow(spec: OverSpec) -> tuple[OverSpec, list[int]]:
    """The spec as it looks on no more columns than it needs, those of aggregates first, and which
    these are."""
    used: dict[int, None] = {}
    for call in spec.aggregates:
        used.update(dict.fromkeys(_read_by(call)))
    for argument, _, default in spec.lags:
        used.update(dict.fromkeys((argument, *(() if default is None else (default,)))))
    if spec.frame == "range":
        used.update(dict.fromkeys(key.index for key in spec.order))
    needed = list(used)
    at = {index: place for place, index in enumerate(needed)}
    return replace(
        spec,
        aggregates=tuple(
            replace(c, args=tuple(at[i] for i in c.args), filter=None if c.filter is None else at[c.filter])
            for c in spec.aggregates
        ),
        lags=tuple((at[i], back, None if default is None else at[default]) for i, back, default in spec.lags),
        order=tuple(replace(key, index=at[key.index]) for key in spec.order) if spec.frame == "range" else (),
    ), needed  # fmt: skip


def _read_by(call: AggregateCall) -> tuple[int, ...]:
    return call.args if call.filter is None else (*call.args, call.filter)


class BoundedFrames:
    """``keys``: partitions by slot; one of which nothing is kept is freed."""

    def __init__(self, spec: OverSpec, ctx: OperatorContext, keys: KeyIndex, *, evicts: bool) -> None:
        assert spec.preceding is not None
        self._partition, self._preceding = spec.partition, spec.preceding
        self._schema, self._keys = ctx.input_schemas[0], keys
        self._spec, self._needed = _narrow(spec)
        types = [self._schema.types[i] for i in self._needed]
        #: So many of the columns are the aggregates'.
        self._arguments = 1 + max((i for call in self._spec.aggregates for i in _read_by(call)), default=-1)
        self._state = AggregateSet(self._spec.aggregates, types, function=ctx.function)
        #: A row's place is the number of its arrival here.
        self._rows = RankedRows(self._schema.types, ctx, evicts=evicts)
        self._next_place = 0
        #: The order's column, where rows go by their time.
        self._time = spec.order[0].index if spec.frame == "range" else None
        # By row: its time; MAX where there is none. By key slot: how many rows.
        self._times = np.full(1024, MAX_WATERMARK, np.int64)
        self._counts = np.zeros(1024, np.int64)
        self.table = self._rows.state_table(
            spec.partition, self._schema.names, "over", ctx.max_parallelism, name="history"
        )
        self._old_form = RowForm(self._schema, spec.partition, "over", ctx.max_parallelism)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def live_bytes(self) -> int:
        """Of the rows, and of what is known of partitions."""
        each = 0 if self._time is None else 8
        return self._rows.live_bytes + each * len(self._rows) + 8 * len(self._keys)

    def results(self, rows: Batch, slots: np.ndarray, looked_back: int) -> list[Column]:
        """Of rows sorted by partition and order, all later than those before them. Rows to come
        look back from ``looked_back`` on; of these partitions what they do not see is given up."""
        bounds = group_bounds(slots)
        touched, new = slots[bounds[:-1]], np.diff(bounds)
        at, entries = self._rows.placed(touched)
        past = np.bincount(at, minlength=len(touched))
        # A partition's earlier rows, then its new ones.
        place = np.arange(len(entries)) + np.repeat(bounds[:-1], past)
        mine = np.arange(len(slots)) + np.repeat(np.cumsum(past), new)
        frames = _Frames(np.append(0, np.cumsum(past + new)), mine)
        columns = [rows.columns[i] for i in self._needed]
        if len(entries):
            order = np.empty(frames.rows, np.int64)
            order[place], order[mine] = np.arange(len(entries)), len(entries) + np.arange(len(slots))
            earlier = self._rows.rows.take_some(entries, self._needed)
            columns = [Column.concat(both).take(order) for both in zip(earlier, columns, strict=True)]
        if self._spec.lags:
            out = [_lag(columns, frames, *lag) for lag in self._spec.lags]
        else:
            out = self._aggregates(columns, frames)
        keep = self._kept(columns, frames, looked_back)
        self._remove(entries[~keep[place]])
        self._counts = grown(self._counts, self._keys.high)
        self._counts[touched] = np.add.reduceat(keep, frames.bounds[:-1], dtype=np.int64)
        fresh = np.flatnonzero(keep[mine])
        stays = rows.columns if len(fresh) == len(slots) else [c.take(fresh) for c in rows.columns]
        self._add(slots[fresh], stays, self.next_places(len(fresh)))
        self._free_empty(touched)
        return out

    def expire(self, looked_back: int) -> int | None:
        """Give up the rows of a RANGE frame that no later row looks back to. Returns the time up
        to which they are gone, as it stands on disk; None where rows do not go by time."""
        if self._time is None:
            return None
        limit = self._limit(looked_back)
        old = np.flatnonzero(self._times[: self._rows.rows.slots.high] <= limit)
        if len(old):
            of = self._rows.partition_of[old]
            np.subtract.at(self._counts, of, 1)
            self._remove(old)
            self._free_empty(distinct(of))
        return min(limit + _TIME_ZERO_US, MAX_WATERMARK)

    # -- frames --------------------------------------------------------------------------

    def _aggregates(self, columns: Sequence[Column], frames: _Frames) -> list[Column]:
        low = self._frame_starts(columns, frames)
        high = last_peers(self._spec, columns, frames.of)[frames.mine] + 1
        parts: list[list[Column]] = []
        for part in bounded_slices(high - low, limit=_PAIRS):
            counts = (high - low)[part]
            total = int(counts.sum())
            shift = np.cumsum(counts) - counts
            inputs = np.arange(total) + np.repeat(low[part] - shift, counts)
            targets = np.repeat(np.arange(len(counts)), counts)
            scratch = self._state.fresh()
            scratch.reset(np.arange(len(counts)), len(counts))
            scratch.add(targets, [c.take(inputs) for c in columns[: self._arguments]], None)
            parts.append(scratch.results(np.arange(len(counts))))
        return [Column.concat([p[i] for p in parts]) for i in range(len(parts[0]))]

    def _frame_starts(self, columns: Sequence[Column], frames: _Frames) -> np.ndarray:
        if self._spec.frame == "rows":
            return np.maximum(frames.mine - self._preceding, frames.starts[frames.mine])
        of = frames.of
        times = columns[self._spec.order[0].index].values
        # Where (partition, time - preceding) would stand among the rows.
        at = np.concatenate((times[frames.mine] - self._preceding, times))
        group = np.concatenate((of[frames.mine], of))
        order = stable_argsort(at)
        order = order[stable_argsort(group[order])]
        is_row = order >= len(frames.mine)
        before = np.cumsum(is_row) - is_row
        out = np.empty(len(frames.mine), np.int64)
        out[order[~is_row]] = before[~is_row]
        return np.maximum(out, frames.starts[frames.mine])

    # -- what is kept --------------------------------------------------------------------

    def _kept(self, columns: Sequence[Column], frames: _Frames, looked_back: int) -> np.ndarray:
        if self._spec.frame == "range":
            return columns[self._spec.order[0].index].values > self._limit(looked_back)
        return np.arange(frames.rows) >= np.repeat(frames.bounds[1:], frames.counts) - self._preceding

    def _limit(self, looked_back: int) -> int:
        """Rows up to this time are not looked back to: none at all once everything came."""
        if looked_back == MAX_WATERMARK:
            return MAX_WATERMARK - 1
        return clamp_watermark(looked_back - self._preceding)

    def _add(self, slots: np.ndarray, columns: Sequence[Column], places: np.ndarray) -> np.ndarray:
        """Of one partition they stand in their order, behind those that it has."""
        entries = self._rows.add(slots, columns, places)
        if len(entries):
            self._next_place = max(self._next_place, int(places.max()) + 1)
            if self._time is not None:
                self._times = grown(self._times, self._rows.rows.slots.high, MAX_WATERMARK)
                self._times[entries] = columns[self._time].values
        return entries

    def _remove(self, entries: np.ndarray) -> None:
        if self._time is not None:
            self._times[entries] = MAX_WATERMARK
        self._rows.remove(entries)

    def _free_empty(self, slots: np.ndarray) -> None:
        self._counts = grown(self._counts, self._keys.high)
        self._keys.free(slots[self._counts[slots] == 0])

    # -- state ---------------------------------------------------------------------------

    def movable(self) -> MovableTable:
        table = self._rows.movable(
            lambda slots, columns: self.put_back(slots, columns[:-1], columns[-1].values)
        )
        if self._time is not None:
            table.times = lambda entries: self._times[entries] + _TIME_ZERO_US
        return table

    def drop(self, slots: np.ndarray) -> None:
        """Give up partitions with their rows, which lie on disk by then."""
        self._remove(self._rows.of(slots))
        self._counts[slots] = 0
        self._keys.free(slots)

    def rows_of(self, block: pa.RecordBatch) -> tuple[Batch, np.ndarray]:
        """(rows, places) that a snapshot holds."""
        k = len(self._partition)
        types = [*(self._schema.types[i] for i in self._partition), *self._schema.types, _LONG]
        if "place" in block.schema.names:
            columns, n = restored_columns([block], types)
            return Batch(self._schema, columns[k:-1], num_rows=n), columns[-1].values
        rows = self._old_form.read([block])  # as they came, in the order of the blocks
        return rows, self.next_places(rows.num_rows)

    def next_places(self, n: int) -> np.ndarray:
        return np.arange(self._next_place, self._next_place + n)

    def put_back(self, slots: np.ndarray, columns: Sequence[Column], places: np.ndarray) -> np.ndarray:
        """Rows of partitions, in any order; there may be more of each."""
        self._counts = grown(self._counts, self._keys.high)
        np.add.at(self._counts, slots, 1)
        return self._add(slots, columns, places)


class _Frames:
    """Earlier and new rows, partition by partition between ``bounds``. ``mine``: the new ones."""

    def __init__(self, bounds: np.ndarray, mine: np.ndarray) -> None:
        self.bounds, self.mine = bounds, mine
        self.counts = np.diff(bounds)
        self.rows = int(bounds[-1])
        #: Of each row: its partition, and where that begins.
        self.of = np.repeat(np.arange(len(self.counts)), self.counts)
        self.starts = np.repeat(bounds[:-1], self.counts)


def _lag(columns: Sequence[Column], frames: _Frames, argument: int, back: int, default: int | None) -> Column:
    """The value ``back`` rows before each of the new rows in its partition, else the default."""
    mine = frames.mine
    at = np.where(mine - back >= frames.starts[mine], mine - back, -1)
    if default is None:
        return columns[argument].take_or_null(at)
    values, instead = columns[argument], columns[default]
    type_ = values.type.with_nullable(True)
    both = Column.concat([values.cast_type(type_), instead.cast_type(type_)])
    return both.take(np.where(at >= 0, at, len(values) + mine))
