"""Bounded OVER frames: aggregates over the last rows, or the last interval, of each partition.

The rows that later frames contain are kept by partition and go to disk with it. Rows of a RANGE frame are
freed, in memory and on disk, when their time is below that of all later frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from penstock.columnar.frames import Layout, counted_from
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
#: The number of rows in frames that are aggregated at a time.
_PAIRS = 262_144
#: Added to a row's time on disk, where times must be positive.
_TIME_ZERO_US = 1 << 62


def first_peers(spec: OverSpec, columns: Sequence[Column], slots: np.ndarray) -> np.ndarray:
    """For each row the first row that equals it in the order. Rows are sorted by partition and order."""
    return Layout.of(columns, spec.order, slots).peers_low


def last_peers(spec: OverSpec, columns: Sequence[Column], slots: np.ndarray) -> np.ndarray:
    """For each row the row whose frame it shares: itself, or for RANGE its last peer in the order."""
    n = len(slots)
    if spec.frame == "rows" or not spec.order:
        return np.arange(n)
    opens = changes(columns, spec.order, np.arange(n))
    opens[1:] |= slots[1:] != slots[:-1]
    first = np.flatnonzero(opens)
    return (np.append(first[1:], n) - 1)[np.cumsum(opens) - 1]


def _narrow(spec: OverSpec) -> tuple[OverSpec, list[int]]:
    """(the spec reduced to the columns that it reads, those of aggregates first; the numbers of these columns)."""
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
    """Computes bounded frames. ``space`` is the key space of the partitions; its rows are those of later frames."""

    def __init__(self, spec: OverSpec, ctx: OperatorContext, space: KeySpace) -> None:
        assert spec.preceding is not None
        schema = ctx.input_schemas[0]
        self._space, self._preceding = space, spec.preceding
        self._spec, self._needed = _narrow(spec)
        types = [schema.types[i] for i in self._needed]
        #: The number of leading columns that aggregates read.
        self._arguments = 1 + max((i for call in self._spec.aggregates for i in _read_by(call)), default=-1)
        self._state = AggregateSet(self._spec.aggregates, types, function=ctx.function)
        #: The time column of a RANGE frame; None for ROWS, whose rows do not expire by time.
        self._time = spec.order[0].index if spec.frame == "range" else None
        self.rows = _FrameRows(space, schema, spec.partition, self._time)

    def __len__(self) -> int:
        return len(self.rows)

    def results(self, rows: Batch, slots: np.ndarray, looked_back: int) -> list[Column]:
        """The result columns of rows sorted by partition and order, all later than the rows kept before.

        Frames of later rows reach back from ``looked_back`` (µs); rows of these partitions below that are
        freed.
        """
        bounds = group_bounds(slots)
        touched, new = slots[bounds[:-1]], np.diff(bounds)
        at, entries = self.rows.rows_of(touched)
        past = np.bincount(at, minlength=len(touched))
        # For each partition the earlier rows, then the new ones.
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
            skipping = self._spec.skipping
            out = [
                _lag(columns, frames, *lag, skips_nulls=i in skipping)
                for i, lag in enumerate(self._spec.lags)
            ]
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
        """Free the rows of a RANGE frame that no later frame contains.

        Returns the time, in the form used on disk, up to which rows are gone; None for a ROWS frame.
        """
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
        # The position of (partition, time - preceding) among the rows.
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
        ends = np.repeat(frames.bounds[1:], frames.counts)
        keep: np.ndarray = np.arange(frames.rows) >= ends - self._preceding
        for i in self._spec.skipping:
            argument, back, _ = self._spec.lags[i]
            valid = columns[argument].valid
            if valid is not None:  # the last values may lie far before the last rows
                up_to = np.cumsum(valid)
                keep |= valid & (up_to[ends - 1] - up_to < back)
        return keep

    def _limit(self, looked_back: int) -> int:
        """Rows with a time up to the result belong to no later frame. After the last watermark these are all rows."""
        if looked_back == MAX_WATERMARK:
            return MAX_WATERMARK - 1
        return clamp_watermark(looked_back - self._preceding)


class _FrameRows(RankedRows):
    """The rows of a partition in order of arrival. ``time``: the column by which rows expire, None if they do not."""

    def __init__(self, space: KeySpace, schema: Schema, partition: Sequence[int], time: int | None) -> None:
        super().__init__(space, "history", schema, partition)
        self._time, self._next_place = time, 0
        #: The time of each row; MAX_WATERMARK if it has none.
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
        rows = self._old_form.read(blocks)  # in order of arrival, which is the order of the blocks
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
        """The rows with a time up to ``limit``."""
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
    """Earlier and new rows, partition by partition between ``bounds``. ``mine`` are the numbers of the new rows."""

    def __init__(self, bounds: np.ndarray, mine: np.ndarray) -> None:
        self.bounds, self.mine = bounds, mine
        self.counts = np.diff(bounds)
        self.rows = int(bounds[-1])
        #: The partition of each row, and the number of that partition's first row.
        self.of = np.repeat(np.arange(len(self.counts)), self.counts)
        self.starts = np.repeat(bounds[:-1], self.counts)


def _lag(
    columns: Sequence[Column],
    frames: _Frames,
    argument: int,
    back: int,
    default: int | None,
    *,
    skips_nulls: bool,
) -> Column:
    """The value ``back`` rows before each new row in its partition, else the default. ``skips_nulls``: only rows
    with a value are counted."""
    mine, valid = frames.mine, columns[argument].valid if skips_nulls else None
    found = mine - back if valid is None else counted_from(mine, valid, -back)
    at = np.where(found >= frames.starts[mine], found, -1)
    if default is None:
        return columns[argument].take_or_null(at)
    values, instead = columns[argument], columns[default]
    type_ = values.type.with_nullable(True)
    both = Column.concat([values.cast_type(type_), instead.cast_type(type_)])
    return both.take(np.where(at >= 0, at, len(values) + mine))
