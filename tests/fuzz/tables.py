"""Random tables: schemas in random order, rows with NULLs, extremes and some disorder."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from penstock.types import logical as t
from penstock.types.batch import Batch

#: SQL type → our type.
TYPES: dict[str, t.DataType] = {
    "INT": t.IntType(),
    "BIGINT": t.BigIntType(),
    "DOUBLE": t.DoubleType(),
    "DECIMAL(10, 2)": t.DecimalType(10, 2),
    "DECIMAL(14, 4)": t.DecimalType(14, 4),
    "STRING": t.VarCharType(),
    "BOOLEAN": t.BooleanType(),
    "DATE": t.DateType(),
    "TIMESTAMP(3)": t.TimestampType(3),
}
NAMES = {
    "INT": "i", "BIGINT": "n", "DOUBLE": "d", "DECIMAL(10, 2)": "m", "DECIMAL(14, 4)": "p", "STRING": "s", "BOOLEAN": "b", "DATE": "day",
    "TIMESTAMP(3)": "tm",
}  # fmt: skip
_START = dt.datetime(2024, 1, 1)
#: Rows come at most this late; the watermark waits as long, so none is dropped.
LATENESS_S = 4
_SMALL: dict[str, Callable[[random.Random], Any]] = {
    "INT": lambda r: r.randint(-3, 6),
    "BIGINT": lambda r: r.randint(-2, 5),
    "DOUBLE": lambda r: r.randint(-6, 9) / 4,
    "DECIMAL(10, 2)": lambda r: Decimal(r.randint(-250, 400)) / 100,
    "DECIMAL(14, 4)": lambda r: Decimal(r.randint(-8, 16)) / r.choice([1, 4, 10_000]),
    "STRING": lambda r: r.choice(["x", "y", "z", "xy", "", "Zed", "ä"]),
    "BOOLEAN": lambda r: r.random() < 0.5,
    "DATE": lambda r: _START.date() + dt.timedelta(days=r.randint(-2, 40)),
    "TIMESTAMP(3)": lambda r: _START + dt.timedelta(seconds=r.randint(0, 90), milliseconds=r.choice([0, 0, 250])),
}  # fmt: skip
_EXTREME: dict[str, list[Any]] = {
    "INT": [2**31 - 1, -(2**31)],
    "BIGINT": [2**63 - 1, -(2**63), 2**53 + 1],
    "DOUBLE": [1e300, -1e-300],
    "DECIMAL(10, 2)": [Decimal("99999999.99"), Decimal("-99999999.99")],
    "DECIMAL(14, 4)": [Decimal("9999999999.9999"), Decimal("-9999999999.9999")],
    "STRING": ["x" * 40, "'", "%_", "\n"],
    "BOOLEAN": [True],
    "DATE": [dt.date(1970, 1, 1), dt.date(2100, 12, 31), dt.date(1969, 12, 31)],
    "TIMESTAMP(3)": [dt.datetime(1969, 12, 31, 23, 59, 59, 999000), dt.datetime(2100, 1, 1)],
}


@dataclass(frozen=True, slots=True)
class Table:
    """``columns``: (name, SQL type); the first is ``id`` (unique), the last ``ts`` (event time)."""

    name: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Any, ...], ...]

    @property
    def schema(self) -> t.Schema:
        return t.Schema.of(*((name, TYPES[kind]) for name, kind in self.columns))

    def batch(self) -> Batch:
        return Batch.of(self.schema, list(self.rows)) if self.rows else Batch.empty(self.schema)

    def of_type(self, kind: str) -> str:
        """The first column of a type; every table has one of each."""
        return next(name for name, other in self.columns if other == kind)

    def with_rows(self, rows: tuple[tuple[Any, ...], ...]) -> Table:
        return replace(self, rows=rows)


def random_table(r: random.Random, name: str) -> Table:
    kinds = list(TYPES) + r.choices(list(TYPES), k=r.randint(0, 3))
    r.shuffle(kinds)
    counts: dict[str, int] = {}
    columns = [("id", "BIGINT")]
    for kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
        columns.append((f"{NAMES[kind]}{counts[kind] if counts[kind] > 1 else ''}", kind))
    columns.append(("ts", "TIMESTAMP(3)"))
    null = r.choice([0.0, 0.1, 0.15, 0.3])
    extreme = r.choice([0.0, 0.0, 0.0, 0.03])
    rows = []
    for i in range(r.choice([0, 1, 3, 8, 13, 20, 20, 30])):
        row: list[Any] = [i]
        for kind in kinds:
            chance = r.random()
            if chance < null:
                row.append(None)
            elif chance > 1 - extreme:
                row.append(r.choice(_EXTREME[kind]))
            else:
                row.append(_SMALL[kind](r))
        late = r.randint(0, LATENESS_S - 1)
        row.append(_START + dt.timedelta(seconds=max(0, 2 * i - late)))
        rows.append(tuple(row))
    return Table(name, tuple(columns), tuple(rows))


def literal(r: random.Random, kind: str) -> str:
    """A constant of a type, in words that both dialects know."""
    value = _SMALL[kind](r)
    match kind:
        case "BOOLEAN":
            return "TRUE" if value else "FALSE"
        case "STRING":
            return f"'{value}'"
        case "DATE":
            return f"DATE '{value}'"
        case "TIMESTAMP(3)":
            return f"TIMESTAMP '{value}'"
        case "INT":
            return str(value) if value >= 0 else f"({value})"
        case _:
            return f"CAST({value} AS {kind})"
