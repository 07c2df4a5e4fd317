"""The cut between the history and the live part: a value of one column.

A row with ``column < at`` belongs to the history, one with ``column >= at`` (or NULL) to the live part.
Every row belongs to exactly one part, even if both hold it.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import ConnectorError, nearest
from penstock.types import Column
from penstock.types import logical as t
from penstock.types.iso import datetime_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.types import Batch, Schema

_WHERE = "connector 'hybrid', option 'switch.at'"
_INTEGERS = (t.TinyIntType, t.SmallIntType, t.IntType, t.BigIntType)


@dataclass(frozen=True)
class Cut:
    """``column``: index into the table's physical columns; ``at``: in the column's storage
    (µs of a timestamp, days of a date)."""

    column: int
    at: int

    @classmethod
    def of(cls, options: Mapping[str, str], schema: Schema) -> Cut | None:
        """The cut that the options name; None if they name none. ConnectorError if an option is missing or
        wrong."""
        name, at = options.get("switch.column"), options.get("switch.at")
        if name is None and at is None:
            return None
        if name is None or at is None:
            missing = "switch.column" if name is None else "switch.at"
            raise ConnectorError(
                f"option '{missing}' is missing",
                expected="'switch.column' and 'switch.at', or neither",
                got="one of them",
                where="connector 'hybrid'",
                remedy=f"add '{missing}'",
            )
        names = [field.name for field in schema.fields]
        if name not in names:
            raise ConnectorError(
                f"the table has no column '{name}'",
                expected="one of " + ", ".join(names),
                got=repr(name),
                where="connector 'hybrid', option 'switch.column'",
                remedy=nearest(name, names) or "name a physical column",
            )
        index = names.index(name)
        return cls(index, _value(at, schema.types[index]))

    def split(self, batch: Batch, position: int, *, history: bool) -> Batch:
        """The rows of ``batch`` that belong to the history (``history``) or to the live part. ``position``:
        the index of the cut's column in the batch."""
        column: Column = batch.columns[position]
        below = np.asarray(column.values) < self.at
        if column.valid is not None:
            below &= column.valid
        keep = below if history else ~below
        return batch if keep.all() else batch.take(np.flatnonzero(keep))


def _value(text: str, type_: t.LogicalType) -> int:
    try:
        match type_:
            case _ if isinstance(type_, _INTEGERS):
                return int(text)
            case t.DateType():
                return (dt.date.fromisoformat(text) - dt.date(1970, 1, 1)).days
            case t.TimestampType():
                return _micros(_naive(text, type_))
            case t.TimestampLtzType():
                moment = datetime_of(text)
                if moment.tzinfo is None:
                    raise ValueError("no offset from UTC")
                return _micros(moment.astimezone(dt.UTC).replace(tzinfo=None))
    except ValueError as err:
        raise ConnectorError(
            "the seam of a hybrid table cannot be read",
            expected=_form(type_),
            got=f"{text!r}: {err}",
            where=_WHERE,
            remedy="'switch.at' is the first value of the column that is live, written like that",
        ) from None
    raise ConnectorError(
        f"a column of type {type_} cannot tell history from live",
        expected="an integer, DATE, TIMESTAMP or TIMESTAMP_LTZ column",
        got=str(type_),
        where="connector 'hybrid', option 'switch.column'",
        remedy="name the column by which the history grows, or leave out 'switch.column' and 'switch.at' when "
        "nothing is in both parts",
    )


def _naive(text: str, type_: Any) -> dt.datetime:
    moment = datetime_of(text)
    if moment.tzinfo is not None:
        raise ValueError(f"{type_} has no zone")
    return moment


def _micros(moment: dt.datetime) -> int:
    since = moment - dt.datetime(1970, 1, 1)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _form(type_: t.LogicalType) -> str:
    match type_:
        case t.TimestampType():
            return "'2024-06-01 00:00:00'"
        case t.TimestampLtzType():
            return "'2024-06-01T00:00:00Z'"
        case t.DateType():
            return "'2024-06-01'"
    return "an integer"
