"""Long programs, as other programs write them: each is planned, and its rows are right."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError, SqlError
from penstock.sql.expressions import MAX_CHAIN
from penstock.sql.session import SqlSession
from penstock.testing import MemoryTable, run_graph
from penstock.types import Batch
from penstock.types.logical import IntType, Schema, VarCharType

SCHEMA = Schema.of(("x", IntType()), ("s", VarCharType()))
ROWS = [(1, "a"), (2, "b"), (3, None)]
LONG = 2_000


def rows_of(query: str) -> list[tuple[object, ...]]:
    MemoryTable("long", SCHEMA, [[Batch.of(SCHEMA, ROWS)]])
    session = SqlSession({"execution.runtime-mode": "BATCH"})
    session.execute("CREATE TABLE t (x INT, s STRING) WITH ('connector' = 'memory', 'name' = 'long')")
    job = session.execute(query).job
    assert job is not None
    return sorted(run_graph(job.job_graph).rows, key=repr)


def chain(operator: str, term: str, n: int = LONG) -> str:
    return f" {operator} ".join(term.replace("#", str(i)) for i in range(n))


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        # 2,000,000 × 1,999 goes over the end of INT, as often in whatever order it is added
        (chain("+", "x * 2000000"), [(x * 2_000_000 * LONG + 2**31) % 2**32 - 2**31 for x in (1, 2, 3)]),
        (chain("||", "s"), ["a" * LONG, "b" * LONG, None]),
        ("x - 1 + " + chain("+", "x", 50), [50, 101, 152]),
        (chain("+", "CAST(x AS DOUBLE)", MAX_CHAIN), [150.0, 300.0, 450.0]),
        (chain("-", "x", MAX_CHAIN), [-148, -296, -444]),
    ],
    ids=["wrapping", "joined", "mixed", "floats", "differences"],
)
def test_chains_of_operators(expression: str, values: list[object]) -> None:
    assert rows_of(f"SELECT x, {expression} AS r FROM t") == [(i + 1, v) for i, v in enumerate(values)]


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        (chain("AND", "x <> # + 3"), [1, 2]),
        (chain("OR", "x = # + 2", 900), [2, 3]),
        (chain("OR", "x = # + 2 AND s <> '#'", 100), [2]),
        (f"x IN ({', '.join(str(i) for i in range(2, 3_000))})", [2, 3]),
    ],
    ids=["and", "or", "or-of-and", "in"],
)
def test_conditions(condition: str, found: list[int]) -> None:
    assert rows_of(f"SELECT x FROM t WHERE {condition}") == [(x,) for x in found]


@pytest.mark.parametrize("term", ["CAST(x AS DOUBLE)", "CAST(x AS DECIMAL(5, 2))", "x - 1"])
def test_what_must_be_computed_from_left_to_right_has_a_limit(term: str) -> None:
    operator = "-" if "-" in term else "+"
    with pytest.raises(SqlError, match="a chain of 1999 operators is too long") as refused:
        rows_of(f"SELECT {chain(operator, term.partition(' - ')[0])} AS r FROM t")
    assert "in a subquery" in (refused.value.remedy or "")


def test_many_columns() -> None:
    columns = ", ".join(f"x + {i} AS c{i}" for i in range(500))
    assert rows_of(f"SELECT {columns} FROM t WHERE x = 2") == [tuple(range(2, 502))]


def test_many_branches() -> None:
    branches = " UNION ALL ".join(f"SELECT x + {i} AS y FROM t WHERE x = 1" for i in range(200))
    assert rows_of(f"SELECT COUNT(*), SUM(y) FROM ({branches})") == [(200, sum(range(1, 201)))]


def test_nested_derived_tables_that_use_a_column_twice() -> None:
    """Put into one another, their expressions would have 2**40 terms."""
    query = "SELECT x FROM t"
    for i in range(40):
        query = f"SELECT x * 2 - x + 1 AS x FROM ({query}) AS d{i} WHERE x * x <> {i - 5} + x"
    assert rows_of(query) == [(41,), (42,), (43,)]


@pytest.mark.parametrize(
    ("expression", "values"),
    [
        ("CASE " + " ".join(f"WHEN x = {i + 2} THEN {i}" for i in range(LONG)) + " ELSE -1 END", [-1, 0, 1]),
        (
            "CASE s " + " ".join(f"WHEN 'k{i}' THEN {i}" for i in range(LONG)) + " WHEN 'b' THEN 7 END",
            [None, 7, None],
        ),
        (f"x IN ({', '.join(map(str, range(2, 20_002)))})", [False, True, True]),
        ("s NOT IN (" + ", ".join(f"'k{i}'" for i in range(20_000)) + ", 'b')", [True, False, None]),
    ],
    ids=["searched case", "case of a value", "in", "not in"],
)
def test_many_choices(expression: str, values: list[object]) -> None:
    assert rows_of(f"SELECT x, {expression} AS r FROM t") == [(i + 1, v) for i, v in enumerate(values)]


def test_case_within_case_has_a_limit() -> None:
    expression = "".join(f"CASE WHEN x = {i} THEN {i} ELSE " for i in range(300)) + "0" + " END" * 300
    with pytest.raises(PenstockError, match="nested too deeply") as refused:
        rows_of(f"SELECT {expression} AS r FROM t")
    assert "split the expression" in (refused.value.remedy or "")
