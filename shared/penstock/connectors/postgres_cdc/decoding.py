"""Decodes the server's texts to batches of the table: the projection's columns, then the metadata columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.connectors.cdc.rows import check_not_null
from penstock.connectors.postgres_cdc.settings import METADATA, OWNER
from penstock.connectors.postgres_cdc.values import column_of
from penstock.errors import InternalError, RecordError
from penstock.halving import by_halves
from penstock.types.batch import Batch, RowKind
from penstock.types.column import Column
from penstock.types.logical import Field, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.base import SourceContext
    from penstock.connectors.postgres_cdc.database import CdcTable


class Texts:
    """Rows of one table as texts, with facts about each row.

    Args:
        columns: The columns of the projection, by their names in the table.
        kinds: uint8 RowKind.
        times_us: int64, µs since the epoch: when the transaction was committed; 0 for rows of the snapshot.
        key_only: Mask of rows that have only the key; None: none.
        unchanged: For each column the mask of values that the server did not send; None: none.
        places: int64, the place of each row among the rows of all tables.
    """

    __slots__ = ("columns", "key_only", "kinds", "places", "table", "times_us", "unchanged")

    def __init__(
        self,
        table: CdcTable,
        columns: Sequence[pa.Array],
        kinds: np.ndarray,
        times_us: np.ndarray,
        key_only: np.ndarray | None = None,
        unchanged: Sequence[np.ndarray | None] | None = None,
        places: np.ndarray | None = None,
    ) -> None:
        self.table = table
        self.columns = list(columns)
        self.kinds, self.times_us = kinds, times_us
        self.key_only = key_only
        self.unchanged = list(unchanged) if unchanged is not None else [None] * len(self.columns)
        self.places = np.arange(len(kinds)) if places is None else places

    def __len__(self) -> int:
        return len(self.kinds)

    def take(self, rows: np.ndarray) -> Texts:
        """The rows at ``rows``."""
        places = pa.array(rows)
        return Texts(
            self.table,
            [column.take(places) for column in self.columns],
            self.kinds[rows],
            self.times_us[rows],
            None if self.key_only is None else self.key_only[rows],
            [None if mask is None else mask[rows] for mask in self.unchanged],
            self.places[rows],
        )

    def halves(self) -> tuple[Texts, Texts] | None:
        """Two halves that can be decoded separately; None for a single row."""
        n = len(self)
        return None if n < 2 else (self.take(np.arange(n // 2)), self.take(np.arange(n // 2, n)))


class Decoder:
    """Makes batches. ``upserts``: the changelog is by key, and a deletion has only its key."""

    def __init__(self, ctx: SourceContext, options: Mapping[str, Any], *, upserts: bool) -> None:
        self._ctx, self._upserts = ctx, upserts
        self._fields = [ctx.schema.fields[i] for i in ctx.projection]
        #: Names of the columns that are read.
        self.names = [field.name for field in self._fields]
        self._database = options["database-name"]
        told = [Field(key, METADATA[key]) for key in ctx.metadata]
        self._schema = Schema((*self._fields, *told))
        self._metadata = list(ctx.metadata)

    def batch(self, several: Sequence[Texts]) -> Batch:
        """The rows of one or several tables in the order of their places; ``on-error`` decides about one that does not fit."""
        found = [pair for texts in several if len(texts) for pair in self._kept(texts)]
        if not found:
            return Batch.empty(self._schema)
        batch = Batch.concat([batch for batch, _ in found])
        if len(several) == 1:
            return batch
        return batch.take(np.argsort(np.concatenate([places for _, places in found]), kind="stable"))

    def _kept(self, texts: Texts) -> list[tuple[Batch, np.ndarray]]:

        def refused(part: Texts, err: Exception) -> None:
            raw = repr([column[0].as_py() for column in part.columns]).encode()
            self._ctx.bad_record(err, raw, f"{OWNER}, table '{texts.table.shown}'")

        return list(
            by_halves(
                texts,
                lambda part: (self._decoded(part), part.places),
                refused,
                halves=Texts.halves,
                errors=RecordError,
            )
        )

    def _decoded(self, texts: Texts) -> Batch:
        key = {column.name for column in texts.table.key}
        key_only = texts.key_only
        if self._upserts:
            deleted = texts.kinds == RowKind.DELETE
            key_only = deleted if deleted.any() else None
        columns = []
        for field, column, unchanged in zip(self._fields, texts.columns, texts.unchanged, strict=True):
            if unchanged is not None and (key_only is None or (unchanged & ~key_only).any()):
                raise RecordError(
                    f"an update does not say what column '{field.name}' holds",
                    expected="every value of the new row",
                    got="a long value that is stored apart (TOAST) and did not change",
                    where=f"{OWNER}, table '{texts.table.shown}'",
                    remedy=f"ALTER TABLE {texts.table.quoted} REPLICA IDENTITY FULL",
                )
            if key_only is not None and field.name not in key:
                column = _blank(column, key_only)
            found = column_of(field, column)
            check_not_null(field, found, None if field.name in key else key_only, OWNER)
            columns.append(found)
        columns += [self._told(name, texts) for name in self._metadata]
        kinds = texts.kinds if texts.kinds.any() else None
        return Batch(self._schema, columns, kinds=kinds, num_rows=len(texts))

    def _told(self, key: str, texts: Texts) -> Column:
        n, type_ = len(texts), METADATA[key]
        match key:
            case "table_name":
                return Column.constant(type_, texts.table.name, n)
            case "schema_name":
                return Column.constant(type_, texts.table.schema, n)
            case "database_name":
                return Column.constant(type_, self._database, n)
            case "op_ts":
                return Column(type_, texts.times_us // 1000 * 1000)
        raise InternalError("metadata that no table has", got=repr(key))


def _blank(column: pa.Array, where: np.ndarray) -> pa.Array:
    return column.take(pa.array(np.arange(len(column)), mask=where))
