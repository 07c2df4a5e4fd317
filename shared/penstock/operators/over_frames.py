"""Bounded OVER frames: aggregates of the last rows, or of the last while, of each partition.

The rows that later frames look back to are kept by partition, and go to the disk with it. Those of
a RANGE frame go when the time is behind that later rows look back to, wherever they lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from penstock.columnar.frames import Layout
from penstock.columnar.sorting import changes, group_bounds, stable_argsort
from penstock.columnar.store import grown
from penstock.operators.emitting import clamp_watermark
from penstock.operators.joining import bounded_slices
from penstock.operators.operator import MAX_WATERMARK
from penstock.state.aggregates import AggregateSet
from penstock.state.ranked_rows import RankedRows
from penstock.state.row_log import RowForm
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from penstock.functions.expr import AggregateCall
    from penstock.jobgraph.specs import OverSpec
    from penstock.operators.operator import OperatorContext
    from penstock.state.key_space import KeySpace
    from penstock.state.slot_table import Parsed
    from penstock.types.batch import Batch
    from penstock.types.logical import Schema

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
    """``space``: of the partitions; it counts their rows. ``rows``: those that later ones look
    back to."""

    def __init__(self, spec: OverSpec, ctx: OperatorContext, space: KeySpace) -> None:
        assert spec.preceding is not None
        schema = ctx.input_schemas[0]
        self._space, self._preceding = space, spec.preceding
        self._spec, self._needed = _narrow(spec)
        types = [schema.types[i] for i in self._needed]
        #: So many of the columns are the aggregates'.
        self._arguments = 1 + max((i for call in self._spec.aggregates for i in _read_by(call)), default=-1)
        self._state = AggregateSet(self._spec.aggregates, types, function=ctx.function)
        #: The order's column, where rows go by their time.
        self._time = spec.order[0].index if spec.frame == "range" else None
        self.rows = _FrameRows(space, schema, spec.partition, self._time)

    def __len__(self) -> int:
        return len(self.rows)

    def results(self, rows: Batch, slots: np.ndarray, looked_back: int) -> list[Column]:
        """Of rows sorted by partition and order, all later than those before them. Rows to come
        look back from ``looked_back`` on; of these partitions what they do not see is given up."""
        bounds = group_bounds(slots)
        touched, new = slots[bounds[:-1]], np.diff(bounds)
        at, entries = self.rows.rows_of(touched)
        past = np.bincount(at, minlength=len(touched))
        # A partition's earlier rows, then its new ones.
        place = np.arange(len(entries)) + np.repeat(bounds[:-1], past)
        mine = np.arange(len(slots)) + np.repeat(np.cumsum(past), new)
        frames = _Frames(np.append(0, np.cumsum(past + new)), mine)
        columns = [rows.columns[i] for i in self._needed]
        if len(entries):
            order = np.empty(frames.rows, np.int64)
            order[place], order[mine] = np.arange(len(entries)), len(entries) + np.arange(len(slots))
            earlier = self.rows.rows.take_some(entries, self._needed)
            columns = [Column.concat(both).take(order) for both in zip(earlier, columns, strict=True)]
        if self._spec.lags:
            out = [_lag(columns, frames, *lag) for lag in self._spec.lags]
        else:
            out = self._aggregates(columns, frames)
        keep = self._kept(columns, frames, looked_back)
        self.rows.remove(entries[~keep[place]])
        self._space.uses = grown(self._space.uses, self._space.high)
        self._space.uses[touched] = np.add.reduceat(keep, frames.bounds[:-1], dtype=np.int64)
        fresh = np.flatnonzero(keep[mine])
        stays = rows.columns if len(fresh) == len(slots) else [c.take(fresh) for c in rows.columns]
        self.rows.add(slots[fresh], stays, self.rows.next_places(len(fresh)))
        return out

    def expire(self, looked_back: int) -> int | None:
        """Give up the rows of a RANGE frame that no later row looks back to. Returns the time up
        to which they are gone, as it stands on disk; None where rows do not go by time."""
        if self._time is None:
            return None
        limit = self._limit(looked_back)
        old = self.rows.until(limit)
        if len(old):
            keys = self.rows.partition_of[old]
            self.rows.free(old, keys)
            self._space.free_unused(keys)
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


class _FrameRows(RankedRows):
    """A row's place is the number of its arrival here: the rows of a partition stand in their order.
    ``time``: the column by which rows go, None where they do not."""

    def __init__(self, space: KeySpace, schema: Schema, partition: Sequence[int], time: int | None) -> None:
        super().__init__(space, "history", schema, partition)
        self._time, self._next_place = time, 0
        #: By row: its time; MAX where there is none.
        self._times = np.full(1024, MAX_WATERMARK, np.int64)
        if time is not None:
            self.times = lambda rows: self._times[rows] + _TIME_ZERO_US
        self._schema = schema
        self._old_form = RowForm(schema, partition, space.kind, space.ctx.max_parallelism)

    @property
    def live_bytes(self) -> int:
        return super().live_bytes + (0 if self._time is None else 8 * len(self))

    def parsed(self, blocks: Sequence[pa.RecordBatch]) -> Parsed:
        if all("place" in block.schema.names for block in blocks):
            return super().parsed(blocks)
        rows = self._old_form.read(blocks)  # as they came, in the order of the blocks
        places = Column(_LONG, self.next_places(rows.num_rows))
        return [rows.columns[i] for i in self._key_columns], [*rows.columns, places], rows.num_rows

    def load(self, keys: np.ndarray, columns: list[Column]) -> np.ndarray:
        self.space.use(keys)
        return super().load(keys, columns)

    def free(self, rows: np.ndarray, keys: np.ndarray) -> None:
        self.space.use(keys, -1)
        self.remove(rows)

    def next_places(self, n: int) -> np.ndarray:
        return np.arange(self._next_place, self._next_place + n)

    def until(self, limit: int) -> np.ndarray:
        """Rows up to this time."""
        return np.flatnonzero(self._times[: self.rows.slots.high] <= limit)

    def add(self, partitions: np.ndarray, columns: Sequence[Column], places: np.ndarray) -> np.ndarray:
        entries = super().add(partitions, columns, places)
        if len(entries):
            self._next_place = max(self._next_place, int(places.max()) + 1)
            if self._time is not None:
                self._times = grown(self._times, self.rows.slots.high, MAX_WATERMARK)
                self._times[entries] = columns[self._time].values
        return entries

    def remove(self, entries: np.ndarray) -> None:
        if self._time is not None:
            self._times[entries] = MAX_WATERMARK
        super().remove(entries)


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
