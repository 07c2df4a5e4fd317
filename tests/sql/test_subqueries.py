"""Where a subquery may stand, and how it is refused elsewhere. (Rows: tests/golden/cases/subqueries.)"""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError, RecordError, SqlError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph


def session(**config: str) -> SqlSession:
    made = SqlSession(
        {"table.exec.join.unbounded-state": "allow", "execution.runtime-mode": "BATCH", **config}
    )
    made.execute("CREATE VIEW v AS SELECT * FROM (VALUES (1), (1), (2), (3), (3), (3)) AS t(x)")
    made.execute("CREATE VIEW w AS SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, 'c')) AS t(y, s)")
    return made


def rows(sql: str) -> list[tuple]:
    job = session().execute(sql).job
    assert job is not None
    return sorted(tuple(r) for r in run_graph(job.job_graph).rows)


AS_CONDITION = "as a condition of WHERE or HAVING"


IN_FROM = [
    ("v.x", "SELECT x FROM v WHERE EXISTS (SELECT 1 FROM (SELECT y FROM w WHERE y = v.x) AS d)"),
    ("x", "SELECT x FROM v WHERE NOT EXISTS (SELECT 1 FROM (SELECT y FROM w WHERE y = x) AS d)"),
    ("v.x", "SELECT x, (SELECT MAX(d.y) FROM (SELECT y FROM w WHERE y < v.x) AS d) FROM v"),
    ("v.x", "SELECT x FROM v WHERE x IN (SELECT y FROM (SELECT y FROM w WHERE y = v.x) AS d)"),
    ("v.x", "SELECT x FROM v WHERE EXISTS (SELECT 1 FROM (SELECT y, v.x AS q FROM w) AS d WHERE d.q = d.y)"),
    ("v.x", "SELECT x FROM v WHERE EXISTS (SELECT 1 FROM w JOIN (SELECT y AS u FROM w WHERE y = v.x) d ON w.y = d.u)"),
    ("v.x", "SELECT x FROM v WHERE x > (SELECT MAX(d.y) FROM (SELECT y FROM w WHERE y <> v.x) AS d WHERE d.y = v.x)"),
    ("v.x", "SELECT x FROM v WHERE EXISTS (SELECT 1 FROM w, LATERAL (SELECT y AS u FROM w AS o WHERE o.y = v.x) AS d)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "what", "remedy"),
    [
        ("SELECT (x, x) IN (SELECT y, y FROM w) FROM v", "IN (subquery) of several columns", AS_CONDITION),
        ("SELECT v.x FROM v LEFT JOIN w ON v.x = 1 OR EXISTS (SELECT y FROM w WHERE y > v.x)", "a left join", "derived"),
        ("SELECT v.x FROM v FULL JOIN w ON v.x = (SELECT MAX(y) FROM w)", "a full join", "derived"),
        ("SELECT x FROM v WHERE x IN (SELECT MAX(y) FROM w WHERE y > v.x)", "without GROUP BY", "compare with the value"),
        ("SELECT x, (SELECT RANK() OVER (ORDER BY y) FROM w WHERE y > v.x LIMIT 1) FROM v", "OVER in a subquery", "join"),
        ("SELECT x, (SELECT LAST_VALUE(y) FROM w WHERE y > v.x) FROM v", "LAST_VALUE in a scalar", "LEFT JOIN"),
        ("SELECT x, z.y FROM v, LATERAL (SELECT a.y FROM w AS a FULL JOIN w AS b ON a.y = b.y WHERE a.y > v.x) AS z",
         "FULL JOIN", "as a subquery"),
        ("SELECT x, z.y FROM v LEFT JOIN LATERAL (SELECT y FROM w WHERE y > v.x) AS z ON z.y > 1", "with a condition", "WHERE"),
        ("SELECT x, (SELECT COUNT(*) FROM w WHERE y = v.x HAVING COUNT(*) = 0) FROM v", "with HAVING", "outside"),
        ("SELECT x, (SELECT COUNT(*) FROM w WHERE y = v.x LIMIT 1) FROM v", "with HAVING, LIMIT", "outside"),
        ("SELECT x FROM v WHERE EXISTS (SELECT 1 FROM w WHERE y = v.x HAVING COUNT(*) = 0)", "with HAVING", "outside"),
        ("SELECT x, z.c FROM v LEFT JOIN LATERAL (SELECT COUNT(*) c FROM w WHERE y = v.x HAVING COUNT(*) < 1) z ON TRUE",
         "with HAVING", "outside"),
        *((sql, f"'{name}', a column of the outer query, in a query in the FROM", "WHERE of the subquery") for name, sql in IN_FROM),
        ("SELECT x FROM v QUALIFY x > 1", "QUALIFY without an OVER", "WHERE"),
    ],
)  # fmt: skip
def test_a_place_that_takes_no_subquery_says_so(sql: str, what: str, remedy: str) -> None:
    with pytest.raises(PenstockError) as caught:
        session().execute(sql)
    assert what in caught.value.message
    assert remedy in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("SELECT (SELECT MAX(y) FROM w) + x FROM v GROUP BY x + 1", "x"),
        ("SELECT COUNT(*), r.a.b FROM (SELECT ROW(ROW(x, 2), 3) AS r, x FROM v) AS q GROUP BY x", "r.a.b"),
    ],
)
def test_what_stands_above_an_aggregate_sees_no_column_below_it(sql: str, column: str) -> None:
    sql = sql.replace("ROW(ROW(x, 2), 3)", "CAST(ROW(ROW(x, 2), 3) AS ROW<a ROW<b INT, c INT>, d INT>)")
    with pytest.raises(SqlError, match="neither grouped nor aggregated") as caught:
        session().execute(sql)
    assert f"'{column}'" in caught.value.message


def test_a_field_of_a_grouped_row() -> None:
    made = "CAST(ROW(ROW(x, 2), 3) AS ROW<a ROW<b INT, c INT>, d INT>)"
    sql = f"SELECT r.a.b, COUNT(*), q.r.d FROM (SELECT {made} AS r FROM v) AS q GROUP BY r"
    assert rows(sql) == [(1, 2, 3), (2, 1, 3), (3, 3, 3)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT SUM(CASE WHEN x IN (SELECT y FROM w WHERE y < 3) THEN 1 END) FROM v", [(3,)]),
        ("SELECT x FROM v ORDER BY x IN (SELECT y FROM w), x LIMIT 3", [(1,), (1,), (2,)]),
        (
            "SELECT x, SUM(x) OVER (PARTITION BY x IN (SELECT y FROM w WHERE y < 3)) FROM v WHERE x <> 1",
            [(2, 2), (3, 9), (3, 9), (3, 9)],
        ),
    ],
)
def test_in_as_a_value_wherever_a_value_may_stand(sql: str, expected: list[tuple]) -> None:
    assert rows(sql) == expected


def test_equal_over_clauses_with_subqueries_are_one() -> None:
    over = "SUM(x) OVER (PARTITION BY x - (SELECT MIN(y) FROM w))"
    assert rows(f"SELECT x, {over} + {over} FROM v WHERE x < 3") == [(1, 4), (1, 4), (2, 4)]


@pytest.mark.parametrize("mode", ["BATCH", "STREAMING"])
@pytest.mark.parametrize(
    "sql",
    ["SELECT x, (SELECT y FROM w) FROM v", "SELECT x FROM v WHERE (SELECT s FROM w WHERE y >= v.x) = 'a'"],
)
def test_a_second_row_of_a_scalar_subquery_fails_the_job(sql: str, mode: str) -> None:
    job = session(**{"execution.runtime-mode": mode}).execute(sql).job
    assert job is not None
    with pytest.raises(RecordError, match="more than one row"):
        run_graph(job.job_graph)


def test_a_rank_in_the_from_of_a_correlated_subquery() -> None:
    ranked = "(SELECT y, RANK() OVER (ORDER BY y) AS r FROM w) AS q"
    found = rows(f"SELECT DISTINCT x, (SELECT COUNT(*) FROM {ranked} WHERE q.r > v.x) FROM v")
    assert found == [(1, 2), (2, 1), (3, 0)]


def test_a_literal_may_stand_before_any_and_all() -> None:
    assert rows("SELECT y, 2 >= ALL (SELECT x FROM v WHERE x <= w.y) FROM w") == [
        (1, True),
        (2, True),
        (3, False),
    ]
    assert rows("SELECT y, 1 + 1 = ANY (SELECT x FROM v) FROM w") == [(1, True), (2, True), (3, True)]


def test_a_column_of_the_outer_query_in_from_has_its_place() -> None:
    for name, sql in IN_FROM:
        with pytest.raises(PenstockError) as caught:
            session().execute(sql)
        column = sql.index(name if "." in name else "= x", sql.index("(SELECT") + 8) + 1
        assert caught.value.where == f"line 1, column {column if '.' in name else column + 2}", sql
    with pytest.raises(PenstockError, match=r"unknown column 'v.nothing'"):
        session().execute(
            "SELECT x FROM v WHERE EXISTS (SELECT 1 FROM (SELECT y FROM w WHERE y = v.nothing) AS d)"
        )
