"""A golden case: one YAML file with a query, the tables that it reads, and its rows.

note: what the case is about (optional)
tables:                     # shared ones by name (tables/<name>.yaml), or declared here
- events
- name: orders
  columns: id INT, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '5' SECOND
  csv: |                    # or json: a record a line; NULL is spelt NULL in CSV
    1,2024-01-01 00:00:01
settings: {table.local-time-zone: Asia/Kolkata}
setup: CREATE VIEW …;       # statements before the query
sql: SELECT …
functions: true             # the Python functions of functions/golden_functions.py
ordered: true               # the rows' order is part of the answer
modes: [BATCH]              # execution.runtime-mode on the streaming engine; else both
reference: duckdb           # who else says so: duckdb | flink | hand
duckdb: SELECT …            # the same in DuckDB's words, where they differ
exceptions: {spark: why}    # engines whose rows differ, with the reason
types: [INT, STRING]        # of the columns (optional)
rows: |                     # a JSON list a line
  [1, null, "x"]
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from penstock.formats import get_format
from penstock.formats.api import FormatContext
from penstock.sql.session import SqlSession
from penstock.types.batch import Batch

HERE = Path(__file__).parent
CASES = HERE / "cases"


@dataclass(frozen=True)
class Table:
    """``connector``: memory, or jdbc (a SQLite file, for look-ups)."""

    name: str
    columns: str
    csv: str = ""
    json: str = ""
    connector: Literal["memory", "jdbc"] = "memory"

    @functools.cached_property
    def batch(self) -> Batch:
        """Its physical rows."""
        session = SqlSession()
        session.execute(f"CREATE TABLE t ({self.columns}) WITH ('connector' = 'print')")
        schema = session.catalog.tables["t"].physical
        name, text = ("json", self.json) if self.json else ("csv", self.csv)
        options = {"csv.null-literal": "NULL"} if name == "csv" else {}
        context = FormatContext(schema, list(range(len(schema))), options, _raise)
        return get_format(name).decoder(context).decode_batch(text.encode(), f"table '{self.name}'")


def _raise(error: Exception, raw: bytes | None, where: str) -> None:
    raise error


class Case(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    sql: str
    rows: str
    reference: Literal["duckdb", "flink", "hand"]
    note: str = ""
    tables: list[str | dict[str, str]] = []
    settings: dict[str, str] = {}
    setup: str = ""
    functions: bool = False
    ordered: bool = False
    modes: tuple[Literal["STREAMING", "BATCH"], ...] = ("STREAMING", "BATCH")
    duckdb: str = ""
    exceptions: dict[str, str] = {}
    types: list[str] = []

    def expected(self) -> list[list[Any]]:
        return [json.loads(line) for line in self.rows.splitlines()]

    def declared(self) -> list[Table]:
        return [shared(t) if isinstance(t, str) else Table(**t) for t in self.tables]


@functools.cache
def shared(name: str) -> Table:
    return Table(name=name, **yaml.load((HERE / "tables" / f"{name}.yaml").read_text(), yaml.CSafeLoader))


@functools.cache
def cases() -> dict[str, Case]:
    """``<folder>/<file>`` → the case."""
    found = {}
    for path in sorted(CASES.rglob("*.yaml")):
        name = str(path.relative_to(CASES).with_suffix(""))
        content = yaml.load(path.read_text(), yaml.CSafeLoader)
        found[name] = msgspec.convert({"name": name, **content}, Case)
    return found
