"""Options, columns and checks of the ``nexmark`` connector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.base import SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.nexmark.settings import OPTIONS
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import ConnectorError, nearest
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LONG, _TEXT, _TIME = t.BigIntType(), t.VarCharType(), t.TimestampType(3)
FIELDS: Mapping[str, Mapping[str, t.LogicalType]] = {
    "person": {
        "id": _LONG, "name": _TEXT, "emailAddress": _TEXT, "creditCard": _TEXT, "city": _TEXT, "state": _TEXT,
        "dateTime": _TIME, "extra": _TEXT,
    },
    "auction": {
        "id": _LONG, "itemName": _TEXT, "description": _TEXT, "initialBid": _LONG, "reserve": _LONG,
        "dateTime": _TIME, "expires": _TIME, "seller": _LONG, "category": _LONG, "extra": _TEXT,
    },
    "bid": {
        "auction": _LONG, "bidder": _LONG, "price": _LONG, "channel": _TEXT, "url": _TEXT, "dateTime": _TIME,
        "extra": _TEXT,
    },
}  # fmt: skip
PLAIN: Mapping[str, t.LogicalType] = {"event_type": t.IntType(), "dateTime": _TIME, "extra": _TEXT}


def _fits(have: t.LogicalType, want: t.LogicalType) -> bool:
    if isinstance(want, t.TimestampType):
        return isinstance(have, t.TIMESTAMPS) and have.precision >= 3
    if isinstance(want, t.VarCharType):
        return isinstance(have, t.VarCharType) and have.length == t.MAX_VARCHAR
    return have.with_nullable(True) == want


def _check_type(name: str, have: t.LogicalType, want: t.LogicalType) -> None:
    if not _fits(have, want):
        raise ConnectorError(
            f"column '{name}' is of another type", expected=str(want), got=str(have),
            where="connector 'nexmark'", remedy=f"declare it {want}",
        )  # fmt: skip


def _check_name(name: str, known: Sequence[str], what: str) -> None:
    if name not in known:
        raise ConnectorError(
            f"Nexmark has no {what} '{name}'", expected=", ".join(known), got=repr(name),
            where="connector 'nexmark'", remedy=nearest(name, known) or "use one of those",
        )  # fmt: skip


class NexmarkConnector(DeclaredConnector):
    """The source ``nexmark``, a wide table: event_type (0 person, 1 auction, 2 bid), the three rows (two of
    them NULL), dateTime, extra. A table may declare any of these columns, by name."""

    name = "nexmark"
    location = ()
    roles = ("source",)
    #: ROW columns may be declared with only the fields that are read.
    nested_projection = True

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        for option in ("rate", "splits"):
            value = OPTIONS.read_one(table.options, option)
            if value is not None and value < 1:
                raise ConnectorError(
                    f"option '{option}' must be positive", expected="1 or more", got=str(value),
                    where="connector 'nexmark'", remedy=f"set '{option}' to 1 or more",
                )  # fmt: skip
        for field in table.schema.fields:
            _check_name(field.name, [*PLAIN, *FIELDS], "column")
            if field.name in PLAIN:
                _check_type(field.name, field.type, PLAIN[field.name])
                continue
            known = FIELDS[field.name]
            if not isinstance(field.type, t.RowType):
                whole = t.RowType(tuple(t.Field(name, type_) for name, type_ in known.items()))
                _check_type(field.name, field.type, whole)
                continue
            for inner in field.type.fields:
                _check_name(inner.name, list(known), f"field of {field.name}")
                _check_type(f"{field.name}.{inner.name}", inner.type, known[inner.name])

    def is_bounded(self, table: TableInfo) -> bool:
        return OPTIONS.read_one(table.options, "events.num") is not None

    def push_down(
        self, table: TableInfo, *, columns: Sequence[int], equals: Mapping[int, Any]
    ) -> Mapping[str, Any]:
        for index, value in equals.items():
            if table.schema.fields[index].name == "event_type":
                return {"event_type": value}
        return {}

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.nexmark.source import NexmarkEnumerator

        return NexmarkEnumerator(table)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.nexmark.source import NexmarkReader

        return NexmarkReader(table)
