"""Turns epochs of events into batches of the wide table, with only the columns that are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from penstock.connectors.nexmark.model import AUCTION, BID, EVENTS_PER_EPOCH, PERSON, PLACE, Model
from penstock.connectors.nexmark.text import auction_pools, bid_pools, person_pools
from penstock.types import Batch, Column, Schema
from penstock.types import logical as t
from penstock.types.storage import external_arrow_type

if TYPE_CHECKING:
    from penstock.connectors.nexmark.text import TextPool

KINDS = {"person": PERSON, "auction": AUCTION, "bid": BID}
_POOLS = {PERSON: person_pools, AUCTION: auction_pools, BID: bid_pools}


class RowMaker:
    """``schema``: the columns to deliver. ``event_type``: only events of that kind."""

    def __init__(self, model: Model, schema: Schema, event_type: int | None) -> None:
        self._model = model
        self._schema = schema
        self._only = event_type
        self._layout: tuple[int, dict[int, np.ndarray], dict[int, pa.Array], np.ndarray] | None = None

    @property
    def rows_per_epoch(self) -> int:
        """The number of rows of an epoch."""
        if self._only is None:
            return EVENTS_PER_EPOCH
        return PLACE[self._only][1] if self._only in PLACE else 0

    def batch(self, epochs: np.ndarray) -> Batch:
        """All rows of the epochs, int64 ascending (runs of consecutive ones are cheap)."""
        n = len(epochs) * self.rows_per_epoch
        columns = [self._column(f.name, f.type, epochs, n) for f in self._schema.fields]
        return Batch(self._schema, columns, num_rows=n)

    # -- columns ----------------------------------------------------------------------

    def _column(self, name: str, type_: t.LogicalType, epochs: np.ndarray, n: int) -> Column:
        if name in KINDS:
            assert isinstance(type_, t.RowType)
            return self._row_column(KINDS[name], type_, epochs, n)
        match name:
            case "event_type":
                if self._only is not None:
                    return Column(type_, np.full(n, self._only, np.int32))
                return Column(type_, np.tile(self._kinds(), len(epochs)))
            case "dateTime":
                return Column(type_, self._model.times_us(self._all_events(epochs)).reshape(-1))
        return Column(type_, self._extra(epochs))

    @staticmethod
    def _kinds() -> np.ndarray:
        return np.repeat(np.array([0, 1, 2], np.int32), [PLACE[k][1] for k in (PERSON, AUCTION, BID)])

    def _all_events(self, epochs: np.ndarray) -> np.ndarray:
        if self._only is not None:
            return self._model.events(epochs, self._only)
        return epochs[:, None] * EVENTS_PER_EPOCH + np.arange(EVENTS_PER_EPOCH, dtype=np.int64)

    def _extra(self, epochs: np.ndarray) -> pa.Array:
        """The column ``extra``: each event's filler text, for all kinds."""
        if self._only is not None:
            return _runs(_POOLS[self._only](self._model.seed)["extra"], epochs, PLACE[self._only][1])
        parts = [_runs(_POOLS[k](self._model.seed)["extra"], epochs, PLACE[k][1]) for k in PLACE]
        e = np.arange(len(epochs))[:, None]
        starts = np.cumsum([0] + [len(p) for p in parts])
        order = np.concatenate(
            [starts[k] + e * count + np.arange(count) for k, (_, count) in PLACE.items()], axis=1
        )
        return pa.concat_arrays(parts).take(pa.array(order.reshape(-1)))

    def _row_column(self, kind: int, type_: t.RowType, epochs: np.ndarray, n: int) -> Column:
        if self._only is not None and self._only != kind:
            return Column.nulls(type_, n)
        model = self._model
        want = {f.name for f in type_.fields}
        events = model.events(epochs, kind)
        numbers: dict[str, np.ndarray] = {}
        if kind == BID:
            numbers = model.bid_numbers(events, epochs, want)
        elif kind == AUCTION:
            numbers = model.auction_numbers(events, epochs, want)
        elif "id" in want:
            numbers["id"] = model.person_ids(epochs)
        if "dateTime" in want:
            numbers["dateTime"] = model.times_us(events)
        wide = self._only is None
        before, mask = self._wide(kind, len(epochs)) if wide else (None, None)
        children, fields = [], []
        for field in type_.fields:
            if field.name in numbers:
                child = self._numbers(kind, field.type, numbers[field.name], n)
            else:
                pool = _POOLS[kind](model.seed)[field.name]
                child = _spread(pool, epochs, PLACE[kind][1], before)
            children.append(child)
            fields.append(pa.field(field.name, child.type))
        return Column(type_, pa.StructArray.from_arrays(children, fields=fields, mask=mask))

    def _numbers(self, kind: int, type_: t.LogicalType, values: np.ndarray, n: int) -> pa.Array:
        if self._only is None:
            first, count = PLACE[kind]
            full = np.zeros((len(values), EVENTS_PER_EPOCH), np.int64)
            full[:, first : first + count] = values
            values = full
        return pa.array(values.reshape(-1)).view(external_arrow_type(type_))

    def _wide(self, kind: int, epochs: int) -> tuple[np.ndarray, pa.Array]:
        """For the wide layout of ``epochs`` epochs: the number of rows of ``kind`` before each row, int[n+1],
        and the mask of the other rows."""
        if self._layout is None or self._layout[0] != epochs:
            kinds = np.tile(self._kinds(), epochs)
            before, masks = {}, {}
            for k in PLACE:
                mine = kinds == k
                before[k] = np.concatenate([[0], np.cumsum(mine)])
                masks[k] = pa.array(~mine)
            self._layout = (epochs, before, masks, kinds)
        return self._layout[1][kind], self._layout[2][kind]


def _consecutive(epochs: np.ndarray) -> list[tuple[int, int]]:
    """(first epoch, length) of each run of consecutive epochs."""
    if int(epochs[-1]) - int(epochs[0]) == len(epochs) - 1:
        return [(int(epochs[0]), len(epochs))]
    starts = np.flatnonzero(np.diff(epochs) != 1) + 1
    edges = [0, *starts.tolist(), len(epochs)]
    return [(int(epochs[a]), b - a) for a, b in zip(edges, edges[1:], strict=False)]  # noqa: RUF007


def _runs(pool: TextPool, epochs: np.ndarray, per_epoch: int) -> pa.Array:
    parts = [pool.run(first * per_epoch, count * per_epoch) for first, count in _consecutive(epochs)]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _spread(pool: TextPool, epochs: np.ndarray, per_epoch: int, before: np.ndarray | None) -> pa.Array:
    """The texts, on the rows of their kind. ``before`` None: every row is of that kind."""
    if before is None:
        return _runs(pool, epochs, per_epoch)
    runs = _consecutive(epochs)
    if len(runs) == 1:
        return pool.spread(runs[0][0] * per_epoch, before)
    parts, at = [], 0
    for first, count in runs:
        rows = before[at * EVENTS_PER_EPOCH : (at + count) * EVENTS_PER_EPOCH + 1]
        parts.append(pool.spread(first * per_epoch, rows - rows[0]))
        at += count
    return pa.concat_arrays(parts)
