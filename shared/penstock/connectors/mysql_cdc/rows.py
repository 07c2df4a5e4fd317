"""Turns runs into rows of the changelog, and rows into batches: the projection's columns, then the metadata
columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from penstock.connectors.cdc.rows import changelog_kinds, check_not_null
from penstock.connectors.mysql_cdc import events as ev
from penstock.connectors.mysql_cdc.binary import column_of_bytes, natural_column
from penstock.connectors.mysql_cdc.images import RawColumn, images
from penstock.connectors.mysql_cdc.keys import key_part
from penstock.connectors.mysql_cdc.settings import METADATA, OWNER
from penstock.connectors.mysql_cdc.values import column_of_texts
from penstock.errors import InternalError, RecordError
from penstock.halving import by_halves
from penstock.types import logical as t
from penstock.types.batch import Batch, RowKind
from penstock.types.column import Column
from penstock.types.logical import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penstock.connectors.base import SourceContext
    from penstock.connectors.mysql_cdc.changes import RowsEvent, Run
    from penstock.connectors.mysql_cdc.database import CdcTable
    from penstock.connectors.mysql_cdc.layouts import Layout
    from penstock.connectors.mysql_cdc.position import Key


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """Rows of one layout of a table.

    Args:
        index: Index of the table.
        table: The table.
        layout: Its layout.
        columns: The raw columns, in the order of the layout.
        kinds: uint8 RowKind.
        times_us: int64: when the transactions were logged, µs since the epoch.
        order: int64: the place of each row in the run: its event's number, shifted by 32 bits, and its place there.
    """

    index: int
    table: CdcTable
    layout: Layout
    columns: list[RawColumn]
    kinds: np.ndarray
    times_us: np.ndarray
    order: np.ndarray

    def __len__(self) -> int:
        return len(self.kinds)

    def take(self, rows: np.ndarray) -> ChangeRows:
        """The rows at ``rows``, ascending."""
        raw = [column.take(rows) for column in self.columns]
        return ChangeRows(
            self.index, self.table, self.layout, raw, self.kinds[rows], self.times_us[rows], self.order[rows]
        )

    def halves(self) -> tuple[ChangeRows, ChangeRows] | None:
        """Two halves that can be decoded separately; None for a single row."""
        n = len(self)
        return None if n < 2 else (self.take(np.arange(n // 2)), self.take(np.arange(n // 2, n)))

    def natural(self, name: str) -> Column:
        """A column as its natural type."""
        at = self.layout.names.index(name)
        return natural_column(self.table.column(name).type, *self.layout.columns[at], self.columns[at])

    def keys(self) -> list[Key]:
        """The primary key of each row."""
        parts = [[key_part(value) for value in self.natural(name).to_pylist()] for name in self.table.key]
        return list(zip(*parts, strict=True))


def rows_of(
    run: Run, tables: Sequence[CdcTable], layouts: Sequence[Layout], *, upserts: bool
) -> list[ChangeRows]:
    """The rows of a run, for each layout of a table. ``upserts``: the newest row of each key, and deletions."""
    by_layout: dict[int, list[int]] = {}
    for number, event in enumerate(run.rows):
        by_layout.setdefault(event.layout, []).append(number)
    return [
        _of_layout([run.rows[n] for n in numbers], np.array(numbers), tables, layouts[which], upserts=upserts)
        for which, numbers in by_layout.items()
    ]


def _of_layout(
    found: Sequence[RowsEvent],
    numbers: np.ndarray,
    tables: Sequence[CdcTable],
    layout: Layout,
    *,
    upserts: bool,
) -> ChangeRows:
    cut = images([event.body for event in found], layout.columns)
    changed = np.array([event.kind for event in found], np.int64)[cut.event]
    second = (changed == ev.UPDATE) & (cut.step % 2 == 1)
    kinds = np.full(len(changed), RowKind.INSERT, np.uint8)
    kinds[changed == ev.DELETE] = RowKind.DELETE
    kinds[changed == ev.UPDATE] = RowKind.UPDATE_BEFORE
    kinds[second] = RowKind.UPDATE_AFTER
    times = np.array([event.at_s for event in found], np.int64)[cut.event] * 1_000_000
    order = numbers[cut.event] << 32 | cut.step
    rows = ChangeRows(layout.table, tables[layout.table], layout, cut.columns, kinds, times, order)
    old = np.flatnonzero(kinds == RowKind.UPDATE_BEFORE)
    same = np.ones(len(old), np.bool_)
    for name in rows.table.key if len(old) else ():
        values = rows.natural(name)
        left, right = values.take(old).to_arrow(), values.take(old + 1).to_arrow()
        same &= pc.equal(left, right).to_numpy(zero_copy_only=False)
    made, kept = changelog_kinds(kinds, old, same, upserts=upserts)
    skip = np.array([event.skip for event in found], np.int64)[cut.event]
    kept &= np.where(changed == ev.UPDATE, cut.step // 2, cut.step) >= skip
    rows = ChangeRows(rows.index, rows.table, layout, rows.columns, made, times, order)
    return rows if kept.all() else rows.take(np.flatnonzero(kept))


class Decoder:
    """Makes batches. ``upserts``: the changelog is by key, and a deletion has only its key."""

    def __init__(self, ctx: SourceContext, options: Mapping[str, Any], *, upserts: bool) -> None:
        self._ctx, self._upserts = ctx, upserts
        self._zone = options["server-time-zone"]
        self._fields = [ctx.schema.fields[i] for i in ctx.projection]
        #: Names of the columns that are read.
        self.names = [field.name for field in self._fields]
        self._metadata = list(ctx.metadata)
        told = [Field(key, METADATA[key]) for key in self._metadata]
        self.schema = Schema((*self._fields, *told))

    def changes(self, rows: ChangeRows) -> tuple[Batch, np.ndarray]:
        """The rows as a batch, and their ``order``; ``on-error`` decides about a row that does not fit, which then is missing."""

        def refused(part: ChangeRows, err: Exception) -> None:
            raw = b"|".join(
                bytes(column.data[column.begin[0] : column.end[0]]) if column.there[0] else b"NULL"
                for column in part.columns
            )
            self._ctx.bad_record(err, raw, f"{OWNER}, table '{part.table.shown}'")

        return self._kept(rows, self._decoded, refused, ChangeRows.halves, lambda part: part.order)

    def chunk(self, table: CdcTable, columns: Sequence[Sequence[Any]], n: int) -> tuple[Batch, np.ndarray]:
        """Rows of the snapshot, whose columns are the server's texts, as a batch, and which of them it has."""

        def decoded(which: np.ndarray) -> Batch:
            made = []
            for field, texts in zip(self._fields, columns, strict=True):
                column = column_of_texts(
                    field, table.column(field.name).type, [texts[i] for i in which.tolist()], self._zone
                )
                check_not_null(field, column, None, OWNER)
                made.append(column)
            return self._batch(table, made, None, np.zeros(len(which), np.int64))

        def refused(which: np.ndarray, err: Exception) -> None:
            raw = repr([texts[which[0]] for texts in columns]).encode()
            self._ctx.bad_record(err, raw, f"{OWNER}, table '{table.shown}'")

        def halves(which: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
            half = len(which) // 2
            return (which[:half], which[half:]) if half else None

        return self._kept(np.arange(n), decoded, refused, halves, lambda which: which)

    def _kept(
        self,
        whole: Any,
        decoded: Callable[[Any], Batch],
        refused: Callable[[Any, Exception], None],
        halves: Callable[[Any], Any],
        which: Callable[[Any], np.ndarray],
    ) -> tuple[Batch, np.ndarray]:
        found = list(
            by_halves(
                whole, lambda part: (decoded(part), which(part)), refused, halves=halves, errors=RecordError
            )
            if len(whole)
            else ()
        )
        if not found:
            return Batch.empty(self.schema), np.zeros(0, np.int64)
        return Batch.concat([batch for batch, _ in found]), np.concatenate([order for _, order in found])

    def _decoded(self, rows: ChangeRows) -> Batch:
        key, layout = rows.table.key, rows.layout
        deleted = rows.kinds == RowKind.DELETE
        key_only = deleted if self._upserts and deleted.any() else None
        columns = []
        for field in self._fields:
            at = layout.names.index(field.name)
            there = rows.table.column(field.name).type
            column = column_of_bytes(field, there, *layout.columns[at], rows.columns[at], self._zone)
            if key_only is not None and field.name not in key:
                column = column.take_or_null(np.where(key_only, -1, np.arange(len(rows))))
            check_not_null(field, column, None if field.name in key else key_only, OWNER)
            columns.append(column)
        return self._batch(rows.table, columns, rows.kinds if rows.kinds.any() else None, rows.times_us)

    def _batch(
        self, table: CdcTable, columns: list[Column], kinds: np.ndarray | None, times_us: np.ndarray
    ) -> Batch:
        n = len(times_us)
        told = [_told(name, table, times_us) for name in self._metadata]
        return Batch(self.schema, [*columns, *told], kinds=kinds, num_rows=n)


def _told(key: str, table: CdcTable, times_us: np.ndarray) -> Column:
    type_: t.LogicalType = METADATA[key]
    match key:
        case "table_name":
            return Column.constant(type_, table.name, len(times_us))
        case "database_name":
            return Column.constant(type_, table.schema, len(times_us))
        case "op_ts":
            return Column(type_, times_us)
    raise InternalError("metadata that no table has", got=repr(key))
