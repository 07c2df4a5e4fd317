"""Batches: columns of equal length, with row kinds and event times.

A channel transports a batch as one Arrow record batch whose two leading columns are the row kinds and the event
times; each of them is left out if it is absent (see ``to_arrow``).
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.types.column import Column
from penstock.types.logical import BigIntType, Schema, TinyIntType
from penstock.types.storage import arrow_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KIND_FIELD = "__kind"
TIME_FIELD = "__time"


class RowKind(enum.IntEnum):
    """What a row of a changelog means. An append-only batch has ``kinds is None``."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def short(self) -> str:
        """``+I``, ``-U``, ``+U`` or ``-D``."""
        return ("+I", "-U", "+U", "-D")[self.value]


#: +1 for rows that add, -1 for rows that retract, indexed by kind.
KIND_SIGN = np.array([1, -1, 1, -1], np.int8)


#: In ``Batch.times``: the record has no event time.
NO_TIME = -(2**63)


class Batch:
    """Rows of ``schema`` as columns.

    Args:
        schema: Names and types of the columns.
        columns: One ``Column`` for each field, all of one length.
        kinds: uint8 RowKind values, one for each row; None when all rows are +I.
        times: int64 µs event time of each record, ``NO_TIME`` for one that has none; None where no record has one. (SQL
            keeps event time in an ordinary column; the DataStream API uses ``times``.)
        num_rows: Number of rows; must be given if there is no column.
    """

    __slots__ = ("columns", "kinds", "num_rows", "schema", "times")

    def __init__(
        self,
        schema: Schema,
        columns: Sequence[Column],
        *,
        kinds: np.ndarray | None = None,
        times: np.ndarray | None = None,
        num_rows: int | None = None,
    ) -> None:
        self.schema = schema
        self.columns = tuple(columns)
        self.kinds = kinds
        self.times = times
        self.num_rows = len(self.columns[0]) if num_rows is None else num_rows

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        return f"Batch({self.num_rows} rows of {self.schema})"

    @property
    def nbytes(self) -> int:
        """Approximate bytes of the columns, kinds and times."""
        extra = 0 if self.kinds is None else self.num_rows
        extra += 0 if self.times is None else 8 * self.num_rows
        return extra + sum(c.nbytes for c in self.columns)

    def column(self, name: str) -> Column:
        """The column ``name``; KeyError if there is none."""
        return self.columns[self.schema.index(name)]

    def signs(self) -> np.ndarray | None:
        """int8 per row: +1 adds, -1 retracts; None if every row adds."""
        return None if self.kinds is None else KIND_SIGN[self.kinds]

    # -- reshaping --------------------------------------------------------------

    def with_columns(self, schema: Schema, columns: Sequence[Column]) -> Batch:
        """The same rows (kinds, times) with other ``columns``, those of ``schema``."""
        return Batch(schema, columns, kinds=self.kinds, times=self.times, num_rows=self.num_rows)

    def with_kinds(self, kinds: np.ndarray | None) -> Batch:
        """The same rows with other ``kinds``."""
        return Batch(self.schema, self.columns, kinds=kinds, times=self.times, num_rows=self.num_rows)

    def with_times(self, times: np.ndarray | None) -> Batch:
        """The same rows with other ``times``."""
        return Batch(self.schema, self.columns, kinds=self.kinds, times=times, num_rows=self.num_rows)

    def select(self, indices: Sequence[int]) -> Batch:
        """The same rows with the columns at ``indices``."""
        return self.with_columns(self.schema.select(indices), [self.columns[i] for i in indices])

    def take(self, indices: np.ndarray) -> Batch:
        """The rows at ``indices``, an integer array."""
        return Batch(
            self.schema,
            [c.take(indices) for c in self.columns],
            kinds=None if self.kinds is None else self.kinds[indices],
            times=None if self.times is None else self.times[indices],
            num_rows=len(indices),
        )

    def filter(self, mask: np.ndarray) -> Batch:
        """The rows where ``mask``, a boolean array, is True."""
        indices = np.flatnonzero(mask)
        return self if len(indices) == self.num_rows else self.take(indices)

    def halves(self) -> tuple[Batch, Batch] | None:
        """The first and the second half; None for fewer than two rows."""
        if self.num_rows < 2:
            return None
        return self.slice(0, self.num_rows // 2), self.slice(self.num_rows // 2)

    def slice(self, offset: int, length: int | None = None) -> Batch:
        """``length`` rows from ``offset`` on (None: all that follow), without a copy."""
        rest = self.num_rows - offset
        length = rest if length is None else min(length, rest)
        if offset == 0 and length == self.num_rows:
            return self
        end = offset + length
        return Batch(
            self.schema,
            [c.slice(offset, length) for c in self.columns],
            kinds=None if self.kinds is None else self.kinds[offset:end],
            times=None if self.times is None else self.times[offset:end],
            num_rows=length,
        )

    def times_or_none(self) -> np.ndarray:
        """``times``, or an array of ``NO_TIME`` if no record has an event time."""
        return np.full(self.num_rows, NO_TIME, np.int64) if self.times is None else self.times

    @property
    def timed(self) -> bool:
        """Whether every record has an event time."""
        return self.times is not None and not (self.times == NO_TIME).any()

    def time_list(self) -> list[int | None]:
        """The records' event times as Python values."""
        if self.times is None:
            return [None] * self.num_rows
        out: list[int | None] = self.times.tolist()
        return out if self.timed else [None if time == NO_TIME else time for time in out]

    @staticmethod
    def concat(batches: Sequence[Batch]) -> Batch:
        """One batch of all rows in order; all must share a schema."""
        if len(batches) == 1:
            return batches[0]
        first = batches[0]
        num_rows = sum(b.num_rows for b in batches)
        kinds = times = None
        if any(b.kinds is not None for b in batches):
            kinds = np.concatenate(
                [np.zeros(b.num_rows, np.uint8) if b.kinds is None else b.kinds for b in batches]
            )
        if any(b.times is not None for b in batches):
            times = np.concatenate([b.times_or_none() for b in batches])
        columns = [Column.concat([b.columns[i] for b in batches]) for i in range(len(first.columns))]
        return Batch(first.schema, columns, kinds=kinds, times=times, num_rows=num_rows)

    @staticmethod
    def empty(schema: Schema) -> Batch:
        """No rows of ``schema``."""
        return Batch(schema, [Column.nulls(f.type, 0) for f in schema.fields], num_rows=0)

    # -- Arrow and Python ---------------------------------------------------------

    def to_arrow(self) -> pa.RecordBatch:
        """The physical record batch: [__kind uint8], [__time int64], then the columns."""
        arrays, names = [], []
        if self.kinds is not None:
            arrays.append(pa.array(self.kinds))
            names.append(KIND_FIELD)
        if self.times is not None:
            arrays.append(pa.array(self.times))
            names.append(TIME_FIELD)
        if not self.columns and not arrays:
            arrays.append(pa.array(np.zeros(self.num_rows, np.uint8)))
            names.append(KIND_FIELD)
        # Positions, not names: SQL allows two columns of one name in a result.
        arrays.extend(c.to_arrow() for c in self.columns)
        names.extend(str(i) for i in range(len(self.columns)))
        return pa.RecordBatch.from_arrays(arrays, names=names)

    @classmethod
    def from_arrow(cls, schema: Schema, rb: pa.RecordBatch) -> Batch:
        """The inverse of ``to_arrow``, without a copy: the record batch ``rb`` as a batch of ``schema``."""
        names = rb.schema.names
        at, kinds, times = 0, None, None
        if at < len(names) and names[at] == KIND_FIELD:
            kinds, at = Column.from_arrow(TinyIntType(), rb.column(at).view(pa.int8())).values, at + 1
            kinds = kinds.view(np.uint8)
        if at < len(names) and names[at] == TIME_FIELD:
            times, at = Column.from_arrow(BigIntType(), rb.column(at)).values, at + 1
        columns = [Column.from_arrow(f.type, rb.column(at + i)) for i, f in enumerate(schema.fields)]
        return cls(schema, columns, kinds=kinds, times=times, num_rows=rb.num_rows)

    def to_external_arrow(self) -> pa.RecordBatch:
        """A record batch for other tools, without kinds and times."""
        fields = [pa.field(f.name, c.to_external_arrow().type) for f, c in self._pairs()]
        arrays = [c.to_external_arrow() for c in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    @classmethod
    def from_external_arrow(cls, schema: Schema, data: pa.RecordBatch | pa.Table) -> Batch:
        """A record batch or table ``data``, whose columns stand in the order of ``schema``, as a batch."""
        columns = [Column.from_arrow(f.type, data.column(i)) for i, f in enumerate(schema.fields)]
        return cls(schema, columns, num_rows=data.num_rows)

    @classmethod
    def of(
        cls,
        schema: Schema,
        rows: Sequence[Sequence[Any]],
        kinds: Sequence[int] | None = None,
        times: Sequence[int] | None = None,
    ) -> Batch:
        """A batch of Python values, for tests and small inputs.

        Args:
            schema: Names and types of the columns.
            rows: The values, None for NULL.
            kinds: RowKind of each row; None: all +I.
            times: Event time of each row in µs; None: no row has one.
        """
        columns = [Column.of(f.type, [r[i] for r in rows]) for i, f in enumerate(schema.fields)]
        return cls(
            schema,
            columns,
            kinds=None if kinds is None else np.array(kinds, np.uint8),
            times=None if times is None else np.array(times, np.int64),
            num_rows=len(rows),
        )

    def to_pylist(self) -> list[tuple[Any, ...]]:
        """Rows as tuples of Python values."""
        if not self.columns:
            return [()] * self.num_rows
        return list(zip(*(c.to_pylist() for c in self.columns), strict=True))

    def rows(self) -> Iterator[tuple[RowKind, tuple[Any, ...]]]:
        """Each row with its kind, as a tuple of Python values."""
        kinds = [RowKind.INSERT] * self.num_rows
        if self.kinds is not None:
            kinds = [RowKind(k) for k in self.kinds.tolist()]
        return zip(kinds, self.to_pylist(), strict=True)

    def _pairs(self) -> Iterator[tuple[Any, Column]]:
        return zip(self.schema.fields, self.columns, strict=True)


def physical_arrow_schema(schema: Schema, *, kinds: bool, times: bool) -> pa.Schema:
    """The Arrow schema of ``Batch.to_arrow`` for a batch with or without kinds and times."""
    fields = [pa.field(KIND_FIELD, pa.uint8())] if kinds else []
    fields += [pa.field(TIME_FIELD, pa.int64())] if times else []
    fields += [pa.field(str(i), arrow_type(f.type)) for i, f in enumerate(schema.fields)]
    return pa.schema(fields)
