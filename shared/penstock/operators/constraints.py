"""Checks rows against the sink table's declaration: NOT NULL columns, and the lengths of CHAR, VARCHAR, BINARY and
VARBINARY.

The sink checks the rows themselves. The types of the query are no proof (a source may deliver a NULL where it
declares none), and a filter in the plan would hide unique keys from the optimiser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.config import NOT_NULL_ENFORCER, TYPE_LENGTH_ENFORCER
from penstock.errors import RecordError
from penstock.functions.casts import fit_binary, fit_text
from penstock.operators.changes import DELETE
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from penstock.jobgraph.specs import SinkSpec
    from penstock.types.batch import Batch


class Constraints:
    """The constraints of one sink. ``bool(constraints)`` is False if there is nothing to check."""

    def __init__(self, spec: SinkSpec) -> None:
        self._names = spec.schema.names
        self._types = spec.schema.types
        self._drop = spec.not_null == "DROP"
        self._trim = spec.type_length == "TRIM_PAD"
        self._not_null = [] if spec.not_null is None else _not_null(spec.schema)
        self._sized = [] if spec.type_length == "IGNORE" else _sized(spec.schema)
        # A −D for a table that is written by key needs only the key columns.
        self._keys = frozenset(spec.keys) if spec.mode == "upsert" else None

    def __bool__(self) -> bool:
        """Whether any column has a constraint."""
        return bool(self._not_null or self._sized)

    def enforce(self, batch: Batch) -> Batch:
        """The rows that may be written, with texts trimmed or padded if the job is configured so.

        Raises:
            RecordError: a row violates a constraint, and the job is not configured to drop or trim it.
        """
        return self._lengths(self._without_nulls(batch))

    def _without_nulls(self, batch: Batch) -> Batch:
        bad: np.ndarray | None = None
        for i in self._not_null:
            valid = batch.columns[i].valid
            if valid is None:
                continue
            missing = ~valid
            if self._keys is not None and batch.kinds is not None and i not in self._keys:
                missing &= batch.kinds != DELETE
            if not missing.any():
                continue
            if not self._drop:
                raise _null(self._names[i])
            bad = missing if bad is None else bad | missing
        return batch if bad is None else batch.filter(~bad)

    def _lengths(self, batch: Batch) -> Batch:
        columns = list(batch.columns)
        for i in self._sized:
            type_, column = self._types[i], columns[i]
            wrong = _wrong_lengths(column, type_)
            if wrong is None:
                continue
            if not self._trim:
                raise _length(self._names[i], type_, wrong)
            fit = fit_text if isinstance(type_, t.STRINGS) else fit_binary
            columns[i] = Column(column.type, fit(column.values, type_))
        return batch.with_columns(batch.schema, columns)


def _not_null(schema: t.Schema) -> list[int]:
    return [i for i, type_ in enumerate(schema.types) if not type_.nullable]


def _sized(schema: t.Schema) -> list[int]:
    return [
        i
        for i, type_ in enumerate(schema.types)
        if isinstance(type_, (*t.STRINGS, *t.BINARIES)) and type_.length != t.MAX_VARCHAR
    ]


def _wrong_lengths(column: Column, type_: t.LogicalType) -> int | None:
    """The length of one value that does not fit the type; None if all values fit."""
    values: pa.Array = column.values
    lengths = pc.utf8_length(values) if isinstance(type_, t.STRINGS) else pc.binary_length(values)
    length = type_.length  # type: ignore[union-attr]
    fixed = isinstance(type_, (t.CharType, t.BinaryType))
    wrong = (pc.not_equal if fixed else pc.greater)(lengths, length)
    found = lengths.filter(wrong)
    return found[0].as_py() if len(found) else None


def _null(name: str) -> RecordError:
    key = NOT_NULL_ENFORCER.key
    return RecordError(
        f"Column '{name}' is NOT NULL, however, a null value is being written into it. You can set job "
        f"configuration '{key}'='DROP' to suppress this exception and drop such records silently.",
        expected="a value in every row",
        got="NULL",
        where=f"column '{name}' of the sink",
        remedy=f"filter such rows out, COALESCE(…) the column, or SET '{key}' = 'DROP'",
    )


def _length(name: str, type_: t.LogicalType, got: int) -> RecordError:
    what = "string" if isinstance(type_, t.STRINGS) else "byte array"
    key = TYPE_LENGTH_ENFORCER.key
    return RecordError(
        f"Column '{name}' is {type_.with_nullable(True)}, however, a {what} of length {got} is being written into "
        f"it. You can set job configuration '{key}' to control this behaviour.",
        where=f"column '{name}' of the sink",
        remedy=f"CAST the column to its type, or SET '{key}' = 'TRIM_PAD'",
    )
