"""Flink's recorded answers to Nexmark, through parser, planner and the real tasks."""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib.util
import os
from datetime import datetime
from pathlib import Path

import pytest

from penstock.sql.session import SqlSession
from penstock.testing import run_graph

_FOLDER = os.environ.get("PENSTOCK_ACCEPTANCE")
pytestmark = pytest.mark.skipif(
    _FOLDER is None, reason="PENSTOCK_ACCEPTANCE (folder of recorded answers) is unset"
)

_spec = importlib.util.spec_from_file_location(
    "nexmark_queries", Path(__file__).with_name("nexmark_queries.py")
)
assert _spec is not None
assert _spec.loader is not None
nexmark = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(nexmark)

#: Recorded as the first 8 hex digits of the MD5 of their text.
_HASHED = {"extra", "bid_extra", "auction_extra", "description", "itemName"}


def session(parallelism: int, mode: str) -> SqlSession:
    events = Path(_FOLDER or "") / "nexmark_flink" / "events.parquet"
    settings = {
        "parallelism.default": str(parallelism),
        "execution.runtime-mode": mode,
        "table.exec.join.unbounded-state": "allow",
    }
    sql = SqlSession(settings)
    for statement in nexmark.declarations(
        f"'connector' = 'filesystem', 'path' = '{events}', 'format' = 'parquet'"
    ):
        sql.execute(statement)
    return sql


def recorded(name: str) -> tuple[list[str], list[tuple[str, ...]]]:
    path = Path(_FOLDER or "") / "nexmark_flink" / "results" / f"{name}.csv.gz"
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.reader(file))
    return rows[0], sorted(tuple(row) for row in rows[1:])


def shown(value: object, column: str) -> str:
    if value is None:
        return ""
    if column in _HASHED:
        return hashlib.md5(str(value).encode()).hexdigest()[:8]
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03d}"
    return str(value)


@pytest.mark.parametrize("mode", ["STREAMING", "AUTOMATIC"])
@pytest.mark.parametrize("name", list(nexmark.QUERIES))
def test_same_rows_as_flink(name: str, mode: str) -> None:
    planned = session(2, mode).execute(nexmark.QUERIES[name]).job
    assert planned is not None
    columns, wanted = recorded(name)
    result = run_graph(planned.job_graph)
    rows = sorted(tuple(shown(v, c) for v, c in zip(row, columns, strict=True)) for row in result.rows)
    assert rows == wanted
