"""Random queries over random rows: after every few rows the streaming engine's collapsed
changelog is what DuckDB gives for the rows so far.

Relations have two columns, ``k STRING`` and ``n BIGINT``, so that any fits into any other.
PENSTOCK_RANDOM_QUERIES says how many queries are tried, at random where it is set; else the
same few every time.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.jobgraph.graph import JobGraph
from penstock.sql.scripts import plan_script
from penstock.testing import JobHarness, MemoryTable
from penstock.types import logical as t
from penstock.types.batch import Batch

SCHEMA = t.Schema.of(
    ("id", t.BigIntType()), ("k", t.VarCharType()), ("n", t.BigIntType()), ("ts", t.TimestampType(3))
)
TABLES = "".join(
    f"CREATE TABLE {name} (id BIGINT, k STRING, n BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '4' SECOND)"
    f" WITH ('connector' = 'memory', 'name' = 'random-{name}');"
    for name in "ab"
)  # fmt: skip
#: Rows of each table that have been read when the results are compared.
STEPS = (5, 11, 18)
_ASKED = os.environ.get("PENSTOCK_RANDOM_QUERIES")
EXAMPLES = settings(
    max_examples=int(_ASKED or 40), derandomize=_ASKED is None, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip

KEYS = st.sampled_from(["'x'", "'y'", "'z'"])
NUMBERS = st.integers(-2, 4)
CONDITIONS = st.one_of(
    st.builds("n {} {}".format, st.sampled_from(["<", ">=", "=", "<>"]), NUMBERS),
    st.builds("k {} {}".format, st.sampled_from(["=", "<>", "<"]), KEYS),
    st.sampled_from(
        ["n IS NULL", "k IS NOT NULL", "n IS NOT NULL AND k <> 'y'", "n BETWEEN 0 AND 2 OR k IS NULL"]
    ),
)
AGGREGATES = st.sampled_from(
    ["COUNT(*)", "COUNT(n)", "SUM(n)", "MIN(n)", "MAX(n)", "COUNT(DISTINCT n)", "SUM(n) FILTER (WHERE n > 0)", "COUNT(DISTINCT k)"]
)  # fmt: skip
_JOINS = ["{left} AS l JOIN {right} AS r", "{left} AS l LEFT JOIN {right} AS r", "{left} AS l RIGHT JOIN {right} AS r",
          "{left} AS l FULL JOIN {right} AS r"]  # fmt: skip
_ON = [
    "l.k = r.k",
    "l.k = r.k AND l.n < r.n",
    "l.n = r.n",
    "l.k = r.k AND l.n = r.n",
    "l.n = r.n AND l.k <> r.k",
]
_SEMI = ["l.k IN (SELECT k FROM {right} AS r)", "EXISTS (SELECT 1 FROM {right} AS r WHERE r.n = l.n)",
         "NOT EXISTS (SELECT 1 FROM {right} AS r WHERE r.k = l.k AND r.n > l.n)"]  # fmt: skip

BASES = st.sampled_from(
    ["(SELECT k, n FROM a)", "(SELECT k, n FROM b)", "(SELECT k, n * 2 - 1 AS n FROM a WHERE n IS NOT NULL)"]
)


def filtered(inner: str, condition: str) -> str:
    return f"(SELECT k, n FROM {inner} AS f WHERE {condition})"


def grouped(inner: str, key: str, aggregate: str, having: str) -> str:
    if key == "n":
        return f"(SELECT MAX(k) AS k, n FROM {inner} AS g GROUP BY n{having})"
    return f"(SELECT k, {aggregate} AS n FROM {inner} AS g GROUP BY k{having})"


def joined(left: str, right: str, join: str, on: str, columns: str) -> str:
    return f"(SELECT {columns} FROM {join.format(left=left, right=right)} ON {on})"


def halved(left: str, right: str, condition: str) -> str:
    return f"(SELECT k, n FROM {left} AS l WHERE {condition.format(right=right)})"


def topped(inner: str, partition: str, order: str, last: int) -> str:
    rank = f"ROW_NUMBER() OVER ({partition} ORDER BY {order})"
    return f"(SELECT k, n FROM (SELECT k, n, {rank} AS p FROM {inner} AS t) AS u WHERE p <= {last})"


def combined(left: str, right: str, operator: str) -> str:
    return f"(SELECT k, n FROM {left} AS v {operator} SELECT k, n FROM {right} AS w)"


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    having = st.sampled_from(["", "", " HAVING COUNT(*) < 3", " HAVING COUNT(*) >= 2", " HAVING MAX(n) <> 1"])
    columns = st.sampled_from(
        ["l.k, l.n", "l.k, r.n", "r.k, l.n", "COALESCE(l.k, r.k) AS k, COALESCE(l.n, r.n) AS n"]
    )
    return st.one_of(
        st.builds(filtered, inner, CONDITIONS),
        st.builds(grouped, inner, st.sampled_from(["k", "k", "n"]), AGGREGATES, having),
        st.builds(joined, inner, inner, st.sampled_from(_JOINS), st.sampled_from(_ON), columns),
        st.builds(halved, inner, inner, st.sampled_from(_SEMI)),
        # Equal rows may stand for one another: all columns are in the order.
        st.builds(topped, inner, st.sampled_from(["PARTITION BY k", "PARTITION BY n", ""]),
                  st.sampled_from(["n DESC, k", "n, k", "k DESC, n"]), st.integers(1, 3)),
        st.builds(combined, inner, inner, st.sampled_from(
            ["UNION ALL", "UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"])),
        st.builds("(SELECT DISTINCT k, n FROM {} AS d)".format, inner),
    )  # fmt: skip


QUERIES = st.recursive(BASES, larger, max_leaves=4).filter(lambda q: len(q) > 60)
_ROW = st.tuples(st.sampled_from(["x", "y", "z", None]), st.one_of(st.none(), NUMBERS), st.integers(0, 3))
ROWS = st.lists(_ROW, min_size=STEPS[-1], max_size=STEPS[-1])
#: Windows come when the watermark has passed them: compared when the input has ended.
WINDOWS = st.builds(
    "SELECT {key}, {aggregate} AS n, window_end FROM TABLE({window}) GROUP BY {key}, window_start, window_end".format,
    key=st.just("k"),
    aggregate=AGGREGATES,
    window=st.sampled_from([
        "TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND)",
        "HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND)",
    ]),
)  # fmt: skip
_BUCKETS = {
    "TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND))":
        "(SELECT *, s AS window_start, s + INTERVAL 5 SECOND AS window_end FROM "
        "(SELECT *, time_bucket(INTERVAL 5 SECOND, ts) AS s FROM a))",
    "TABLE(HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))":
        "(SELECT *, s AS window_start, s + INTERVAL 10 SECOND AS window_end FROM "
        "(SELECT *, time_bucket(INTERVAL 5 SECOND, ts) - to_seconds(5 * i) AS s FROM a, range(2) AS r(i)))",
}  # fmt: skip


def batch(rows: list[tuple[str | None, int | None, int]]) -> Batch:
    """Event time moves on about two seconds a row, a little out of order."""
    start = 1_704_067_200_000_000
    columns = [(i, k, n, start + (2 * i - late) * 1_000_000) for i, (k, n, late) in enumerate(rows)]
    return Batch.of(SCHEMA, [(i, k, n, _at(us)) for i, k, n, us in columns])


def _at(us: int) -> Any:
    import datetime as dt

    return dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=us)


def by_duckdb(query: str, tables: dict[str, Batch], rows: int) -> Counter[str]:
    with duckdb.connect() as connection:
        connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'; SET threads = 1")
        for name, table in tables.items():
            connection.register(name, table.slice(0, rows).to_external_arrow())
        return shown(connection.execute(query).fetchall())


def shown(rows: list[tuple[Any, ...]]) -> Counter[str]:
    return Counter(repr(row) for row in rows)


def planned(query: str, tables: dict[str, Batch], parallelism: int) -> tuple[JobGraph, list[MemoryTable]]:
    made = [MemoryTable(f"random-{n}", SCHEMA, [[x]], batch_rows=4) for n, x in tables.items()]
    config = {
        "parallelism.default": str(parallelism),
        "execution.runtime-mode": "STREAMING",
        "table.exec.join.unbounded-state": "allow",
    }
    return plan_script(TABLES + query, config).job_graph, made


@pytest.mark.slow
@EXAMPLES
@given(QUERIES, ROWS, ROWS, st.sampled_from([1, 2, 3]))
def test_results_are_right_after_every_few_rows(query: str, a: list, b: list, parallelism: int) -> None:
    tables = {"a": batch(a), "b": batch(b)}
    query = f"SELECT k, n FROM {query} AS q"
    graph, made = planned(query, tables, parallelism)

    async def run() -> None:
        for table in made:
            table.release(0)
        read = {name for name in tables if f"FROM {name}" in query}
        async with JobHarness(graph) as job:
            for step in STEPS:
                for table in made:
                    table.release(step)
                await job.until(lambda s=step: sum(x.rows_read for x in made) == s * len(read))
                if step < STEPS[-1]:
                    await job.checkpoint()
                    rows = (await job.result()).rows
                else:
                    rows = (await job.wait()).rows
                assert shown(rows) == by_duckdb(query, tables, step), f"after {step} rows of each"

    asyncio.run(run())


@EXAMPLES
@given(WINDOWS, ROWS, st.sampled_from([1, 3]))
def test_windows_are_right_at_the_end(query: str, a: list, parallelism: int) -> None:
    tables = {"a": batch(a)}
    graph, _ = planned(query, tables, parallelism)
    reference = query
    for ours, theirs in _BUCKETS.items():
        reference = reference.replace(ours, theirs)

    async def run() -> list[tuple[Any, ...]]:
        async with JobHarness(graph) as job:
            return (await job.wait()).rows

    assert shown(asyncio.run(run())) == by_duckdb(reference, tables, STEPS[-1])
