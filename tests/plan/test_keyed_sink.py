"""Rows that an updating query writes into a table by another key than its own."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from penstock.sql.session import SqlSession
from penstock.testing import MemoryTable, run_graph
from penstock.types import Batch
from penstock.types.logical import IntType, Schema, VarCharType

#: k1 and k2 are both in group x, then k2 goes over to y: x is k1's again.
MOVES = [("k1", "x", 1), ("k2", "x", 2), ("k2", "y", 3)]
SCHEMA = Schema.of(("k", VarCharType()), ("g", VarCharType()), ("at", IntType()))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_key_that_two_rows_stand_behind_falls_back_to_the_other_when_one_leaves(
    tmp_path: Path, parallelism: int
) -> None:
    file = tmp_path / "places.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE places (g TEXT PRIMARY KEY, k TEXT)")
    MemoryTable("moves", SCHEMA, [[Batch.of(SCHEMA, [row]) for row in MOVES]], batch_rows=1)
    session = SqlSession({"parallelism.default": str(parallelism), "execution.runtime-mode": "STREAMING"})
    session.execute(
        "CREATE TABLE moves (k STRING, g STRING, at INT) WITH ('connector' = 'memory', 'name' = 'moves')"
    )
    session.execute(
        "CREATE TABLE places (g STRING, k STRING, PRIMARY KEY (g) NOT ENFORCED) "
        f"WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{file}', 'table-name' = 'places')"
    )
    job = session.execute("INSERT INTO places SELECT MAX(g), k FROM moves GROUP BY k").job
    assert job is not None
    run_graph(job.job_graph)
    with sqlite3.connect(file) as database:
        assert sorted(database.execute("SELECT g, k FROM places")) == [("x", "k1"), ("y", "k2")]


@pytest.mark.parametrize(
    ("key", "query"),
    [
        ("k", "SELECT k, g, n, ROW_NUMBER() OVER (ORDER BY n DESC, k) AS r FROM counted"),
        ("k, g", "SELECT k, g, n, ROW_NUMBER() OVER (PARTITION BY g ORDER BY n DESC, k) AS r FROM counted"),
    ],
)
@pytest.mark.parametrize("last", [1, 2])
def test_a_row_that_another_one_pushes_out_of_the_first_n_leaves_the_table(
    tmp_path: Path, key: str, query: str, last: int
) -> None:
    file = tmp_path / "first.db"
    with sqlite3.connect(file) as database:
        database.execute(f"CREATE TABLE first (k TEXT, g TEXT, n INT, r INT, PRIMARY KEY ({key}))")
    rows = [(k, "x", 0) for k in ("a", "a", "b", "b", "c", "b", "c", "c", "c")]
    MemoryTable("rising", SCHEMA, [[Batch.of(SCHEMA, [row]) for row in rows]], batch_rows=1)
    session = SqlSession({"parallelism.default": "1", "execution.runtime-mode": "STREAMING"})
    for statement in (
        "CREATE TABLE rising (k STRING, g STRING, at INT) WITH ('connector' = 'memory', 'name' = 'rising')",
        "CREATE VIEW counted AS SELECT k, g, COUNT(*) AS n FROM rising GROUP BY k, g",
        f"CREATE TABLE first (k STRING, g STRING, n BIGINT, r BIGINT, PRIMARY KEY ({key}) NOT ENFORCED) "
        f"WITH ('connector' = 'jdbc', 'url' = 'jdbc:sqlite:{file}', 'table-name' = 'first')",
    ):
        session.execute(statement)
    job = session.execute(
        f"INSERT INTO first (k, g, n, r) SELECT k, g, n, r FROM ({query}) WHERE r <= {last}"
    ).job
    assert job is not None
    run_graph(job.job_graph)
    with sqlite3.connect(file) as database:
        kept = sorted(database.execute("SELECT r, k, n FROM first"))
    assert kept == [(1, "c", 4), (2, "b", 3)][:last]
