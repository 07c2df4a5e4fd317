"""Hints behind SELECT: STATE_TTL and those of joins. Their rows on both engines: tests/golden/cases/joins."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock.jobgraph.specs import GroupAggregateSpec, JoinSpec
from penstock.sql.session import SqlSession

HOUR = 3_600_000


@pytest.fixture
def session() -> SqlSession:
    made = SqlSession({"table.exec.join.unbounded-state": "allow"})
    for name in "abc":
        made.execute(f"CREATE TABLE {name} (id INT, k INT) WITH ('connector' = 'datagen')")
    return made


def specs(session: SqlSession, sql: str, kind: type) -> list:
    graph = session.execute(sql).job.job_graph
    return [op.spec for v in graph.vertices for op in v.operators if isinstance(op.spec, kind)]


def lifetimes(session: SqlSession, sql: str) -> list[tuple[int, int | None]]:
    return [(spec.ttl_ms, spec.right_ttl_ms) for spec in specs(session, sql, JoinSpec)]


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("STATE_TTL('a' = '2 h', 'b' = '1 h')", (2 * HOUR, HOUR)),
        ("STATE_TTL('a' = '2 h')", (2 * HOUR, 0)),
        ("STATE_TTL('b' = '1h')", (0, HOUR)),
        ("STATE_TTL(a = '1 h', `b` = '1 h')", (HOUR, None)),
        ("BROADCAST(a), state_ttl('b' = '1 h')", (0, HOUR)),
    ],
)
@pytest.mark.parametrize(
    "clause", ["a JOIN b ON a.k = b.k", "a, b WHERE a.k = b.k", "a FULL JOIN b ON a.k = b.k"]
)
def test_each_side_of_a_join_gets_its_lifetime(session, hint, expected, clause):
    assert lifetimes(session, f"SELECT /*+ {hint} */ a.id, b.id FROM {clause}") == [expected]


def test_a_side_without_a_lifetime_of_its_own_has_that_of_the_session(session):
    session.execute("SET 'table.exec.state.ttl' = '3 h'")
    sql = "SELECT /*+ STATE_TTL('x' = '1 h') */ x.id FROM a AS x JOIN b ON x.k = b.k"
    assert lifetimes(session, sql) == [(HOUR, 3 * HOUR)]
    assert lifetimes(session, sql.replace("1 h", "0 s")) == [(0, 3 * HOUR)]


def test_several_joins_stay_in_their_order(session):
    """Without the hint the planner joins ``a`` and ``c`` first, as nothing connects ``a`` with ``b``."""
    sql = "SELECT /*+ STATE_TTL('b' = '1 h', 'c' = '2 h') */ a.id FROM a, b, c WHERE a.k = c.k AND b.k = c.id"
    assert sorted(lifetimes(session, sql)) == [(0, HOUR), (0, 2 * HOUR)]


def test_a_hint_counts_for_its_own_select_only(session):
    sql = (
        "SELECT /*+ STATE_TTL('q' = '1 h') */ q.n FROM (SELECT k, COUNT(*) AS n FROM a GROUP BY k) AS q "
        "JOIN b ON q.k = b.k"
    )
    [aggregate] = specs(session, sql, GroupAggregateSpec)
    assert aggregate.ttl_ms == 0
    assert lifetimes(session, sql) == [(HOUR, 0)]


@pytest.mark.parametrize("rest", ["k, COUNT(*) FROM a GROUP BY k", "COUNT(*) FROM a GROUP BY ROLLUP (k)"])
def test_groups_get_the_lifetime_of_their_table(session, rest):
    found = specs(session, f"SELECT /*+ STATE_TTL('a' = '1 h') */ {rest}", GroupAggregateSpec)
    assert {spec.ttl_ms for spec in found} == {HOUR}


def test_explain_says_how_long_rows_stay(session):
    shown = session.execute(
        "EXPLAIN SELECT /*+ STATE_TTL('a' = '1 d', 'b' = '12 h') */ a.id FROM a JOIN b ON a.k = b.k"
    ).message
    assert "the left for 1 d after its last change, the right for 12 h" in shown


def test_both_lifetimes_bound_the_state_of_a_join(session):
    session.execute("SET 'table.exec.join.unbounded-state' = 'refuse'")
    sql = "SELECT /*+ STATE_TTL('a' = '1 d', 'b' = '12 h') */ a.id FROM a JOIN b ON a.k = b.k"
    assert lifetimes(session, sql) == [(24 * HOUR, 12 * HOUR)]
    with pytest.raises(PenstockError, match="keeps every row for ever"):
        session.execute(sql.replace(", 'b' = '12 h'", ""))


@pytest.mark.parametrize(
    ("hint", "message", "column"),
    [
        ("STATE_TTL('x' = '1 h')", "the table 'x', which is not in this FROM", 12),
        ("SHUFFLE_HASH(x)", "the table 'x', which is not in this FROM", 12),
        ("STATE_TTL('a' = 'soon')", "STATE_TTL of 'a' is no duration", 12),
        ("SHUFFLE_HUSH(a)", "the hint SHUFFLE_HUSH", 12),
        ("STATE_TTL('a' = '1 h'", "syntax error", 33),
        ("STATE_TTL('a' '1 h')", "syntax error", 26),
    ],
)
def test_a_wrong_hint_is_refused_at_its_place(session, hint, message, column):
    with pytest.raises(PenstockError, match=message) as caught:
        session.execute(f"SELECT /*+ {hint} */ a.id FROM a JOIN b ON a.k = b.k")
    assert caught.value.where == f"line 1, column {column}"


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT /*+ STATE_TTL('a' = '1 h') */ id FROM a", ["a"]),
        (
            "SELECT /*+ STATE_TTL('a' = '1 h', 'b' = '1 h') */ a.k, COUNT(*) FROM a, b WHERE a.k = b.k GROUP BY a.k",
            [],
        ),
        ("SELECT /*+ STATE_TTL('a' = '1 h') */ k, COUNT(*) FROM a GROUP BY k", []),
        (
            "SELECT /*+ STATE_TTL('a' = '1 h') */ k FROM a UNION ALL SELECT /*+ STATE_TTL('c' = '1 h') */ k FROM c",
            ["a", "c"],
        ),
        ("INSERT INTO p SELECT /*+ STATE_TTL('a' = '1 h') */ id FROM a", ["a"]),
    ],
)
def test_a_lifetime_without_effect_is_told(session, sql, names):
    session.execute("CREATE TABLE p (id INT) WITH ('connector' = 'print')")
    told = session.execute(sql).warnings
    assert [words.split("'")[1] for words in told] == names
    assert all("has no effect (line 1, column " in words for words in told)
    shown = session.execute(f"EXPLAIN {sql}").message
    assert shown.count("\nwarning: STATE_TTL of") == len(names)
    assert session.execute("SHOW TABLES").warnings == ()
