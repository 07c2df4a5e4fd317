"""Two outputs, record by record."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

EXAMPLES = 5


@dataclass(frozen=True)
class Difference:
    """Of one part of an output; as multisets, so a record that came twice is an extra one."""

    part: str
    lost: int
    extra: int
    examples: list[str]

    def __bool__(self) -> bool:
        return bool(self.lost or self.extra)


def differences(got: Mapping[str, pa.Table], want: Mapping[str, pa.Table]) -> list[Difference]:
    assert got.keys() == want.keys(), (got.keys(), want.keys())
    return [_difference(part, got[part], want[part]) for part in want]


def _difference(part: str, got: pa.Table, want: pa.Table) -> Difference:
    if not want.num_columns or not got.num_columns:
        return Difference(part, want.num_rows, got.num_rows, [])
    with duckdb.connect() as db:
        db.register("got", got.select(want.column_names))
        db.register("want", want)
        lost = db.sql("SELECT * FROM want EXCEPT ALL SELECT * FROM got").to_arrow_table()
        extra = db.sql("SELECT * FROM got EXCEPT ALL SELECT * FROM want").to_arrow_table()
    examples = [f"- {row}" for row in lost.slice(0, EXAMPLES).to_pylist()]
    examples += [f"+ {row}" for row in extra.slice(0, EXAMPLES).to_pylist()]
    return Difference(part, lost.num_rows, extra.num_rows, examples)


def digest(tables: Mapping[str, pa.Table]) -> str:
    """Of all rows, whatever their order."""
    out = hashlib.sha256()
    for name, table in sorted(tables.items()):
        with duckdb.connect() as db:
            db.register("rows_in", table)
            sql = "SELECT md5(CAST(r AS VARCHAR)) AS row FROM rows_in AS r ORDER BY row"
            rows = db.sql(sql).to_arrow_table()["row"]
        out.update(name.encode())
        for row in rows.to_pylist():
            out.update(row.encode())
    return out.hexdigest()[:16]
