"""Batch mode on the streaming engine gives final rows only, to every kind of sink."""

from __future__ import annotations

import pytest

from penstock.errors import UnsupportedError
from penstock.jobgraph import specs as s
from penstock.jobgraph.graph import JobGraph
from penstock.sql.session import SqlSession
from penstock.testing import run_graph
from penstock.types.batch import RowKind

L = "(VALUES (1, 'a'), (2, 'b'), (2, 'c'), (3, 'd'), (CAST(NULL AS INT), 'e')) AS l(k, v)"
R = "(VALUES (2, 'x'), (3, 'y'), (4, 'z'), (2, 'w')) AS r(k, v)"
LEFT = f"SELECT l.k, l.v, r.v AS w FROM {L} LEFT JOIN {R} ON l.k = r.k"
ROWS_OF_LEFT = {(1, "a", None), (2, "b", "x"), (2, "b", "w"), (2, "c", "x"), (2, "c", "w"), (3, "d", "y"), (None, "e", None)}  # fmt: skip


def planned(query: str, parallelism: int = 2, **config: str) -> JobGraph:
    settings = {"execution.runtime-mode": "BATCH", "parallelism.default": str(parallelism), **config}
    job = SqlSession(settings).execute(query).job
    assert job is not None
    return job.job_graph


def specs(graph: JobGraph, kind: type) -> list[s.Spec]:
    return [op.spec for v in graph.vertices for op in v.operators if isinstance(op.spec, kind)]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (LEFT, ROWS_OF_LEFT),
        (f"SELECT r.k, l.v, r.v AS w FROM {L} FULL JOIN {R} ON l.k = r.k AND l.v < 'c'",
         {(None, "a", None), (2, "b", "x"), (2, "b", "w"), (None, "c", None), (None, "d", None), (None, "e", None),
          (3, None, "y"), (4, None, "z")}),
        (f"SELECT k, v FROM {L} WHERE k NOT IN (SELECT k FROM {R})", {(1, "a")}),
        (f"SELECT k, v FROM {L} WHERE NOT EXISTS (SELECT 1 FROM {R} WHERE r.k = l.k)", {(1, "a"), (None, "e")}),
        # An array cannot be a key: the other columns bring the changes of a row together.
        (f"SELECT ARRAY[l.k, 7] AS a, r.v FROM {L} FULL JOIN {R} ON l.v = r.v", None),
        # Nothing but an array: all rows are in one subtask.
        (f"SELECT ARRAY[l.k, r.k] AS a FROM {L} FULL JOIN {R} ON l.k = r.k WHERE l.k IS NULL",
         {((None, 4),), ((None, None),)}),
        (f"SELECT k, v FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM {L}) WHERE n = 1",
         {(1, "a"), (2, "c"), (3, "d"), (None, "e")}),
        (f"SELECT k FROM {L} EXCEPT SELECT k FROM {R}", {(1,), (None,)}),
        (f"SELECT v FROM ({LEFT}) ORDER BY v DESC, w LIMIT 2", {("e",), ("d",)}),
        (f"SELECT k, w, COUNT(*) OVER (PARTITION BY k) AS n FROM ({LEFT}) WHERE k < 2", {(1, None, 1)}),
    ],
)  # fmt: skip
def test_no_row_is_taken_back(query: str, rows: set[tuple] | None, parallelism: int) -> None:
    result = run_graph(planned(query, parallelism))
    assert {kind for kind, _ in result.changelog} == {RowKind.INSERT}
    if rows is not None:
        plain = {tuple(tuple(x) if isinstance(x, list) else x for x in row) for row in result.rows}
        assert plain == rows


def test_limit_counts_final_rows() -> None:
    result = run_graph(planned(f"SELECT * FROM ({LEFT}) LIMIT 5"))
    assert len(result.rows) == 5
    assert set(result.rows) <= ROWS_OF_LEFT


def test_a_table_of_inserts_alone_takes_an_outer_join(tmp_path) -> None:  # type: ignore[no-untyped-def]
    session = SqlSession({"execution.runtime-mode": "BATCH", "parallelism.default": "2"})
    session.execute(
        "CREATE TABLE out (k INT, v STRING, w STRING) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path / 'o'}', 'format' = 'csv')"
    )
    job = session.execute(f"INSERT INTO out {LEFT}").job
    assert job is not None
    run_graph(job.job_graph)
    lines = [
        line for file in (tmp_path / "o").rglob("*") if file.is_file() for line in file.read_text().split()
    ]
    assert sorted(lines) == sorted(",".join("" if x is None else str(x) for x in row) for row in ROWS_OF_LEFT)
    session.execute("SET 'execution.runtime-mode' = 'STREAMING'")
    with pytest.raises(UnsupportedError, match="takes only inserts"):
        session.execute(f"INSERT INTO out {LEFT}")


def test_rows_wait_at_the_sink_only() -> None:
    """An aggregation takes rows back itself, and gives final rows."""
    counted = planned(f"SELECT v, COUNT(*) FROM ({LEFT}) GROUP BY v")
    assert not specs(counted, s.FinalRowsSpec)
    assert specs(planned(LEFT), s.FinalRowsSpec)
    assert not specs(planned(f"SELECT l.k FROM {L} JOIN {R} ON l.k = r.k"), s.FinalRowsSpec)
    assert not specs(planned(LEFT, **{"execution.runtime-mode": "STREAMING"}), s.FinalRowsSpec)
