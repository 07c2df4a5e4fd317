"""Answers by DuckDB, and whether rows are the same answer.

Averages of decimals have six digits more here and are floating-point in DuckDB: numbers are compared with
a tolerance. Where ORDER BY leaves rows of one rank in any order, LIMIT may keep others of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import exp, parse_one

Row = tuple[Any, ...]
_TYPES = {"VARCHAR": "STRING", "INTEGER": "INT"}


class Answers:
    """DuckDB over a suite's tables (``folder``: one folder with Parquet files a table)."""

    def __init__(self, folder: Path) -> None:
        self.tables = {path.name: path for path in sorted(folder.iterdir())}
        self._db = duckdb.connect()
        # As Flink orders them: NULL is the smallest value.
        self._db.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        for name, path in self.tables.items():
            self._db.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}/*.parquet')")

    def declarations(self) -> list[str]:
        """CREATE TABLE statements of the same files."""
        out = []
        for name, path in self.tables.items():
            columns = ", ".join(
                f"`{column}` {_TYPES.get(kind, kind)}"
                for column, kind, *_ in self._db.execute(f"DESCRIBE {name}").fetchall()
            )
            options = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet'"
            out.append(f"CREATE TABLE {name} ({columns}) WITH ({options})")
        return out

    def rows(self, sql: str) -> list[Row]:
        return [tuple(map(plain, row)) for row in self._db.execute(sql).fetchall()]

    def difference(self, sql: str, rows: Sequence[Sequence[Any]]) -> str:
        """How ``rows`` differ from the answer; empty when they do not."""
        got = [tuple(map(plain, row)) for row in rows]
        want = self.rows(sql)
        if len(got) != len(want):
            return f"{len(got)} rows instead of {len(want)}"
        tree = parse_one(sql, read="duckdb")
        keys = _order_columns(tree)
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            if not all(same(a[k], b[k]) for k in keys):
                return f"row {i + 1} by ORDER BY: {a} instead of {b}"
        if tree.args.get("limit") is not None:
            want = self.rows(_without_limit(tree))
        missing = _not_among(got, want)
        return f"not in the answer: {missing[0]}" if missing else ""


def plain(value: Any) -> Any:
    match value:
        case bool() | None:
            return value
        case int() | Decimal():
            return float(value)
        case str():
            return value.rstrip()
        case datetime():
            midnight = value.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
            return midnight.date().isoformat() if value == midnight else value.isoformat()
        case date():
            return value.isoformat()
    return value


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-4) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def _not_among(rows: list[Row], others: list[Row]) -> list[Row]:
    """Rows without one of their own among the others."""
    buckets: dict[Any, list[Row]] = {}
    for row in others:
        buckets.setdefault(_bucket(row), []).append(row)
    out = []
    for row in rows:
        bucket = buckets.get(_bucket(row), [])
        found = next((i for i, other in enumerate(bucket) if all(map(same, row, other))), None)
        if found is None:
            out.append(row)
        else:
            del bucket[found]
    return out


def _bucket(row: Row) -> Row:
    """Rows that may be the same have the same."""
    return tuple(value if isinstance(value, (str, bool)) else value is None for value in row)


def _order_columns(tree: exp.Expression) -> list[int]:
    """Output columns that ORDER BY names, as far as each of its keys is one."""
    order = tree.args.get("order")
    if order is None:
        return []
    select = tree
    while isinstance(select, exp.SetOperation):
        select = select.left
    names = (
        [item.alias_or_name.lower() for item in select.expressions] if isinstance(select, exp.Select) else []
    )
    out: list[int] = []
    for key in order.expressions:
        if isinstance(key.this, exp.Literal) and key.this.is_int:
            out.append(int(key.this.name) - 1)
        elif isinstance(key.this, exp.Column) and names.count(key.this.name.lower()) == 1:
            out.append(names.index(key.this.name.lower()))
        else:
            break
    return out


def _without_limit(tree: exp.Expression) -> str:
    whole = tree.copy()
    whole.set("limit", None)
    return whole.sql("duckdb")
