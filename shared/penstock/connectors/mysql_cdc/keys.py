"""Primary keys: as positions hold them, in SQL, and in the order in which the snapshot is read."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from penstock.connectors.mysql_cdc.database import quoted, rows
from penstock.connectors.mysql_cdc.types import INTEGERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.mysql_cdc.database import CdcColumn, CdcTable
    from penstock.connectors.mysql_cdc.position import Key

#: The most keys that one question to the server has.
_MOST = 500


def key_part(value: Any) -> int | str:
    """A value of a key as positions hold it: numbers and texts, bytes in hex."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(" ", "microseconds")
    return value if isinstance(value, int) else str(value)


def _local(column: CdcColumn) -> bool:
    """Whether keys of the column are compared here: numbers, and bytes by their hex. Of others only the server knows
    the order."""
    return (column.type.base in INTEGERS and not (column.type.base == "bigint" and column.type.unsigned)) or (
        column.type.base in ("binary", "varbinary")
    )


def literal(column: CdcColumn, value: int | str) -> str:
    """A part of a key in SQL."""
    base = column.type.base
    if base in ("binary", "varbinary"):
        return f"X'{value}'"
    if base == "date":
        return f"CAST('{value}' AS DATE)"
    if base in ("datetime", "timestamp"):
        return f"CAST('{value}' AS DATETIME(6))"
    if column.type.charset:
        text = str(value).encode().hex()
        return f"CONVERT(CONVERT(X'{text}' USING utf8mb4) USING {column.type.charset}) COLLATE {column.collation}"
    return str(value)


def behind_sql(table: CdcTable, after: Key) -> str:
    """The condition for rows whose keys come after ``after``, so that the primary key's index finds them."""
    columns = [table.column(name) for name in table.key]
    names = [quoted(column.name) for column in columns]
    constants = [literal(column, value) for column, value in zip(columns, after, strict=True)]
    cases = []
    for i, name in enumerate(names):
        same = [f"{names[k]} = {constants[k]}" for k in range(i)]
        cases.append(" AND ".join([*same, f"{name} > {constants[i]}"]))
    return f"{names[0]} >= {constants[0]} AND (" + " OR ".join(f"({case})" for case in cases) + ")"


def behind(
    connection: Any, options: Mapping[str, Any], table: CdcTable, keys: Sequence[Key], bound: Key
) -> list[bool]:
    """For each key, whether it comes after ``bound`` in the order of the chunks."""
    columns = [table.column(name) for name in table.key]
    if all(map(_local, columns)):
        return [key > bound for key in keys]
    limits = [literal(column, value) for column, value in zip(columns, bound, strict=True)]
    out: list[bool] = []
    for first in range(0, len(keys), _MOST):
        parts = []
        for n, key in enumerate(keys[first : first + _MOST]):
            shown = [literal(column, value) for column, value in zip(columns, key, strict=True)]
            parts.append(f"SELECT {n} AS n, ({', '.join(shown)}) > ({', '.join(limits)}) AS b")
        found = rows(connection, options, f"SELECT b FROM ({' UNION ALL '.join(parts)}) AS u ORDER BY n")
        out += [row[0] in ("1", 1) for row in found]
    return out
