"""No clause is parsed and dropped: each argument of each syntax node is translated or refused by name."""

from __future__ import annotations

import pytest
from sqlglot import exp

from penstock.errors import PenstockError, SqlError, UnsupportedError
from penstock.sql import syntax
from penstock.sql.consumption import MEANINGLESS, named
from penstock.sql.errors import Source
from penstock.sql.parsing import parse_script
from penstock.sql.queries import QueryBinder
from penstock.sql.session import SqlSession
from penstock.testing import run_graph

_TABLES = (
    "CREATE VIEW v AS SELECT * FROM (VALUES (1, 2, 'a'), (3, 4, 'b')) AS x(a, b, c)",
    "CREATE TABLE t (a INT, b INT, c STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ('connector' = 'datagen')",
)


@pytest.fixture
def session():
    made = SqlSession()
    for ddl in _TABLES:
        made.execute(ddl)
    return made


#: (query, column of the place on line 1, words of the error)
REFUSED: dict[str, tuple[str, int, str]] = {
    "PIVOT of ANY": ("SELECT * FROM v PIVOT (SUM(a) FOR c IN (ANY))", 24, "form of PIVOT"),
    "PIVOT of a query": ("SELECT * FROM v PIVOT (SUM(a) FOR c IN (SELECT c FROM v))", 48, "PIVOT compares with constants"),
    "PIVOT of a column": ("SELECT * FROM v PIVOT (SUM(a) FOR c IN (b))", 41, "PIVOT compares with constants"),
    "PIVOT of NULL": ("SELECT * FROM v PIVOT (SUM(a) FOR c IN (NULL))", 41, "PIVOT compares with constants"),
    "PIVOT by no aggregate": ("SELECT * FROM v PIVOT (ABS(a) FOR c IN ('a'))", 24, "needs aggregate functions"),
    "PIVOT of too many": ("SELECT * FROM v PIVOT (SUM(a) FOR c IN (('a', 1) AS x))", 42, "does not fit its columns"),
    "PIVOT of one name": ("SELECT * FROM v PIVOT (SUM(a) FOR c IN ('a', 'a'))", 24, "two columns the name"),
    "PIVOT without a name": ("SELECT * FROM v PIVOT (SUM(a) FOR b IN (-1))", 42, "has no name"),
    "a neighbour without LATERAL": ("SELECT 1 FROM v, (SELECT v.a + 1) AS w", 26, "LATERAL"),
    "a neighbour in a WHERE without LATERAL": (
        "SELECT 1 FROM v LEFT JOIN (SELECT x.a FROM t AS x WHERE x.a = v.b) AS w ON TRUE", 63, "LATERAL"),
    "a column that nobody has in a derived table": ("SELECT 1 FROM v, (SELECT nowhere FROM t) AS w", 26, "unknown column"),
    "WITH RECURSIVE": ("WITH RECURSIVE r AS (SELECT a FROM v) SELECT * FROM r", 16, "WITH RECURSIVE"),
    "UNPIVOT": ("SELECT * FROM (SELECT a, b FROM v) UNPIVOT (x FOR n IN (a, b))", 45, "UNPIVOT"),
    "WITH TIES": ("SELECT * FROM v ORDER BY a FETCH FIRST 2 ROWS WITH TIES", 40, "WITH TIES"),
    "PERCENT": ("SELECT * FROM v ORDER BY a FETCH FIRST 2 PERCENT ROWS ONLY", 40, "PERCENT"),
    "EXCLUDE": (
        "SELECT SUM(a) OVER (ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) FROM t",
        46, "EXCLUDE"),
    "EXCLUDE in WINDOW": (
        "SELECT SUM(a) OVER w FROM t WINDOW w AS (ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW EXCLUDE TIES)",
        67, "EXCLUDE"),
    "GROUP BY DISTINCT": ("SELECT a, COUNT(*) FROM v GROUP BY DISTINCT GROUPING SETS ((a), (a))", 61, "GROUP BY DISTINCT"),
    "GROUP BY ALL": ("SELECT a, COUNT(*) FROM v GROUP BY ALL", 36, "GROUP BY ALL"),
    "sets without a comma": ("SELECT a, COUNT(*) FROM v GROUP BY a GROUPING SETS ((a))", 36, "without a comma"),
    "WITH ROLLUP": ("SELECT a, COUNT(*) FROM v GROUP BY a WITH ROLLUP", 43, "GROUP BY ROLLUP"),
    "UNION BY NAME": ("SELECT a FROM v UNION ALL BY NAME SELECT b FROM v", 8, "UNION BY NAME"),
    "EXCEPT BY NAME": ("SELECT a FROM v EXCEPT BY NAME SELECT b FROM v", 8, "EXCEPT BY NAME"),
    "LIMIT BY": ("SELECT * FROM v LIMIT 1 BY a", 28, "LIMIT … BY"),
    "a hint of a view": ("SELECT a FROM v /*+ OPTIONS('x' = 'y') */", 15, "OPTIONS hint"),
    "a hint of a WITH table": ("WITH g AS (SELECT 1 AS a) SELECT a FROM g /*+ OPTIONS('x' = 'y') */", 41, "OPTIONS hint"),
    "a hint behind an alias": ("SELECT a FROM t AS x /*+ OPTIONS('seed' = '1') */ WHERE a > 1", 22, "OPTIONS('seed' = '1')"),
    "OPTIONS behind SELECT": ("SELECT /*+ OPTIONS('seed' = '1') */ a FROM t", 12, "OPTIONS"),
    "a hint in front": ("/*+ OPTIONS('seed' = '1') */ SELECT a FROM t", 1, "OPTIONS('seed' = '1')"),
    "a hint that is unknown": ("SELECT /*+ BROADCASD(t) */ a FROM t", 12, "BROADCASD"),
    "a hint behind VALUES": ("VALUES /*+ BROADCAST(t) */ (1)", 8, "BROADCAST(t)"),
    "MATERIALIZED": ("WITH g AS MATERIALIZED (SELECT 1 AS a) SELECT * FROM g", 6, "MATERIALIZED"),
    "NOT MATERIALIZED": ("WITH g AS NOT MATERIALIZED (SELECT 1 AS a) SELECT * FROM g", 6, "MATERIALIZED"),
    "TABLESAMPLE": ("SELECT * FROM v TABLESAMPLE (10 PERCENT)", 30, "TABLESAMPLE"),
    "DISTINCT ON": ("SELECT DISTINCT ON (a) a, b FROM v", 21, "DISTINCT ON"),
    "* EXCEPT": ("SELECT * EXCEPT (a) FROM v", 18, "EXCEPT"),
    "SORT BY": ("SELECT a FROM v SORT BY a", 25, "SORT BY"),
    "FOR UPDATE": ("SELECT a FROM v FOR UPDATE", 8, "LOCKS"),
    "* behind a table": ("SELECT * FROM v *", 17, "another clause"),
    "pipes": ("SELECT a FROM v |> WHERE a > 1", 17, "'|>'"),
    "UNNEST WITH OFFSET": ("SELECT * FROM UNNEST(ARRAY[1, 2]) WITH OFFSET", 40, "WITH ORDINALITY"),
    "condition of a left lateral join": (
        "SELECT * FROM v LEFT JOIN UNNEST(ARRAY[1, 2]) AS u(x) ON x > 1", 58, "with a condition"),
    "IGNORE NULLS inside": ("SELECT MAX(a IGNORE NULLS) FROM v", 12, "behind the parentheses"),
    "IGNORE NULLS of a scalar function": ("SELECT ABS(a) IGNORE NULLS FROM v", 8, "does not belong to ABS"),
    "RESPECT NULLS of SUM": ("SELECT SUM(a) RESPECT NULLS FROM v", 8, "does not belong to SUM"),
    "RESPECT NULLS of FIRST_VALUE": ("SELECT FIRST_VALUE(a) RESPECT NULLS FROM v", 8, "FIRST_VALUE"),
    "IGNORE NULLS of RANK": ("SELECT RANK() IGNORE NULLS OVER (ORDER BY ts) FROM t", 8, "does not belong to RANK"),
    "IGNORE NULLS of LAG of no rows": ("SELECT LAG(a, 0) IGNORE NULLS OVER (ORDER BY ts) FROM t", 8, "LAG of 0 rows"),
    "ORDER BY in an aggregate": ("SELECT SUM(a ORDER BY a) FROM v", 12, "ORDER BY in SUM"),
    "LIMIT in an aggregate": ("SELECT ARRAY_AGG(c LIMIT 2) FROM v", 18, "LIMIT"),
    "WITHIN GROUP": ("SELECT SUM(a) WITHIN GROUP (ORDER BY a) FROM v", 38, "ORDER BY in SUM"),
    "SEPARATOR": ("SELECT LISTAGG(c SEPARATOR ',') FROM v", 18, "'SEPARATOR'"),
    "DISTINCT of a scalar function": ("SELECT ABS(DISTINCT a) FROM v", 21, "no aggregate"),
    "RETURNING of JSON_EXISTS": ("SELECT JSON_EXISTS(c, '$.a' RETURNING INT) FROM v", 20, "RETURNING"),
    "DEFAULT of JSON_QUERY": ("SELECT JSON_QUERY(c, '$.a' DEFAULT 1 ON EMPTY) FROM v", 19, "DEFAULT"),
    "WRAPPER of JSON_VALUE": ("SELECT JSON_VALUE(c, '$.a' WITH WRAPPER) FROM v", 19, "WRAPPER"),
    "UNIQUE KEYS": ("SELECT c IS JSON OBJECT WITH UNIQUE KEYS FROM v", 8, "UNIQUE KEYS"),
    "an unknown argument of a window": (
        "SELECT * FROM TABLE(TUMBLE(DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' DAY, FOO => 1))",
        105, "no argument FOO"),
    "CONNECT BY": ("SELECT a FROM v START WITH a = 1 CONNECT BY a = 2", 28, "CONNECT"),
    "WITH TOTALS": ("SELECT a, SUM(b) FROM v GROUP BY a WITH TOTALS", 34, "TOTALS"),
    "two keys": ("CREATE TABLE z (a INT PRIMARY KEY NOT ENFORCED, PRIMARY KEY (a) NOT ENFORCED)", 77, "one PRIMARY KEY"),
    "an unknown LIKE feature": ("CREATE TABLE z LIKE t (INCLUDING FOO)", 34, "CONSTRAINTS"),
    "OR REPLACE of a function": ("CREATE OR REPLACE FUNCTION f AS 'a.b' LANGUAGE PYTHON", 19, "OR REPLACE TABLE or VIEW"),
    "DROP TEMPORARY of a lasting table": ("DROP TEMPORARY TABLE t", 1, "temporary"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_clause_that_is_not_translated_is_refused_by_name(session, name):
    text, column, words = REFUSED[name]
    with pytest.raises((SqlError, UnsupportedError)) as caught:
        session.execute(text)
    assert words in str(caught.value)
    assert caught.value.where == f"line 1, column {column}"


def test_a_clause_of_a_computed_column_and_of_a_view_is_refused_at_create(session):
    with pytest.raises(SqlError, match="ABS is no aggregate"):
        session.execute("CREATE TABLE z (a INT, b AS ABS(DISTINCT a)) WITH ('connector' = 'datagen')")
    with pytest.raises(UnsupportedError, match="TABLESAMPLE"):
        session.execute("CREATE VIEW w AS SELECT * FROM v TABLESAMPLE (10 PERCENT)")
    assert "w" not in session.catalog.views


#: Queries whose last clause the translation once dropped, or reads in an unusual way: their rows.
TRANSLATED: dict[str, tuple[str, list[tuple]]] = {
    "a hint on the next line": (
        "SELECT COUNT(*) FROM t\n /*+ OPTIONS('number-of-rows' = '2') */\n WHERE a IS NOT NULL OR TRUE", [(2,)]),
    "modifiers of VALUES": ("VALUES (3), (1) ORDER BY 1 LIMIT 1", [(1,)]),
    "ONE row": ("SELECT a FROM v ORDER BY a DESC FETCH NEXT ROW ONLY", [(3,)]),
    "condition of a lateral join": ("SELECT a, x FROM v JOIN UNNEST(ARRAY[1, 2]) AS u(x) ON x > 1 AND a > 1", [(3, 2)]),
    "an equal window twice": (
        "SELECT a, COUNT(*) OVER (PARTITION BY c) AS n FROM v ORDER BY COUNT(*) OVER (PARTITION BY c), a", [(1, 1), (3, 1)]),
    "EXISTS with a list": ("SELECT a FROM v WHERE EXISTS (SELECT DISTINCT b FROM v AS w WHERE w.b = v.a + 1)", [(1,), (3,)]),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSLATED)
def test_a_clause_in_an_unusual_place_counts(session, name):
    text, rows = TRANSLATED[name]
    assert sorted(run_graph(session.execute(text).job.job_graph).rows) == rows


# -- every node and argument that the parser can make ---------------------------------------------

#: Queries that together have every node type that is translated.
SAMPLES = (
    "WITH g AS (SELECT 1 AS a, 'x' AS c) SELECT DISTINCT v.a AS p, -b, NOT (a > 1), TRUE, NULL FROM v, g AS h(q, r) "
    "WHERE a + b - 1 * 2 / 3 % 4 <> 5 AND c || 'x' LIKE 'a!%' ESCAPE '!' OR a IN (1, 2) OR a < b OR a <= b OR a >= b OR a = b OR b BETWEEN 1 AND 2 "
    "ORDER BY 1 DESC NULLS LAST LIMIT 3 OFFSET 1",
    "SELECT CASE a WHEN 1 THEN 2 ELSE 3 END, CAST(a AS STRING), DATE '2024-01-01', ROW(a, b).`EXPR$0`, ARRAY[1, 2][1], "
    "x'ab', U&'\\0041', c IS JSON, c SIMILAR TO 'x', a IS DISTINCT FROM b, a IS NOT DISTINCT FROM b FROM v",
    "SELECT * FROM (SELECT a FROM v UNION ALL SELECT b FROM v) AS s(k) ORDER BY k FETCH FIRST 2 ROWS ONLY",
    "SELECT a FROM v INTERSECT SELECT b FROM v EXCEPT SELECT 1",
    "SELECT c, COUNT(DISTINCT a) FILTER (WHERE b > 1), LAST_VALUE(a) IGNORE NULLS, JSON_ARRAYAGG(a), COUNT(*) FROM v "
    "GROUP BY GROUPING SETS ((c), ()), ROLLUP (a), CUBE (b) HAVING COUNT(*) > 0",
    "SELECT SUM(a) OVER w, ROW_NUMBER() OVER (PARTITION BY c ORDER BY ts) FROM t "
    "WINDOW w AS (PARTITION BY c ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)",
    "SELECT /*+ BROADCAST(x) */ x.*, u.y FROM v AS x JOIN v AS z USING (a) LEFT JOIN v AS q ON q.b = x.b CROSS JOIN UNNEST(ARRAY[1]) AS u(y)",
    "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), SIZE => INTERVAL '1' DAY)) GROUP BY window_start, window_end",
    "SELECT a, (SELECT MAX(b) FROM v) FROM v WHERE a IN (SELECT a FROM v) AND EXISTS (SELECT 1 FROM v) AND a >= ALL (SELECT 1)",
    "SELECT a FROM (VALUES (1), (2)) AS s(a) ORDER BY a",
    "SELECT a FROM t /*+ OPTIONS('seed' = '1') */",
    "SELECT p.* FROM v PIVOT (SUM(a) AS s, COUNT(*) FOR (b, c) IN ((1, 'a') AS x, (2, 'b'))) AS p(q, r, s, u)",
    "SELECT JSON_VALUE(c, '$.a' DEFAULT 1 ON EMPTY), TIMESTAMPDIFF(DAY, ts, ts), EXTRACT(DAY FROM ts) FROM t",
)  # fmt: skip


def _bind(session: SqlSession, text: str, change=None):
    """The query bound, after ``change`` of its tree; the tree."""
    statement = parse_script(text)[0]
    if change is not None:
        change(statement.query)
    QueryBinder(session.catalog, {}, Source(text)).statement(statement.query)
    return statement.query


def _sampled(session) -> list[tuple[str, int, type, list[str]]]:
    found = []
    for text in SAMPLES:
        for at, node in enumerate(_bind(session, text).walk(bfs=False)):
            absent = [key for key in type(node).arg_types if node.args.get(key) in (None, [])]
            found.append((text, at, type(node), absent))
    return found


def test_the_samples_are_translated(session):
    kinds = {kind for _, _, kind, _ in _sampled(session)}
    ours = {getattr(syntax, name) for name in dir(syntax) if isinstance(getattr(syntax, name), type)}
    ours = {kind for kind in ours if issubclass(kind, exp.Expression) and kind.__module__ == syntax.__name__}
    # A bound table stands in queries that the Table API makes; no text has one.
    assert ours - kinds == {syntax.AsOf, syntax.BoundTable}, "a node of our own that no sample has"


def test_an_argument_that_no_sample_has_is_refused_or_means_something(session):
    """Each argument of each translated node is given in turn: the query must not be translated as
    if it were absent."""
    silent = []
    seen: set[tuple[type, str]] = set()
    for text, at, kind, absent in _sampled(session):
        for key in absent:
            if (kind, key) in seen or (kind, key) in MEANINGLESS:
                continue
            seen.add((kind, key))

            given = exp.Literal.string("given by the test")
            outcomes = [_outcome(session, text, at, key, value) for value in (given, [given])]
            # A shape that the parser never makes may crash; it must not pass.
            if "translated" in outcomes and (kind, key) != (exp.Tuple, "expressions"):
                silent.append(f"{kind.__name__}.{key}: {outcomes}")
    assert len(seen) > 200
    assert silent == []


def _outcome(session: SqlSession, text: str, at: int, key: str, value: object) -> str:
    """What becomes of the query when the node's argument is given."""
    try:
        _bind(session, text, lambda tree: list(tree.walk(bfs=False))[at].set(key, value))
    except PenstockError:
        return "refused"
    except (TypeError, AttributeError, KeyError) as err:
        return type(err).__name__
    return "translated"


def _all_nodes() -> list[type]:
    found: list[type] = []
    waiting: list[type] = [exp.Expression]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            if kind not in found:
                found.append(kind)
                waiting.append(kind)
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("place", ["expressions", "from", "query"])
def test_every_node_type_of_the_library_is_translated_or_refused_by_name(session, place):
    """Each class of syntax nodes, in the SELECT list, in FROM and as the query itself."""
    silent = []
    sampled = {kind for _, _, kind, _ in _sampled(session)}
    # The Table API makes bound tables, and no text has one.
    kinds = [kind for kind in _all_nodes() if kind not in sampled | {syntax.BoundTable}]
    for kind in kinds:
        args = {key: exp.column("a") for key in kind.arg_types}
        text = "SELECT a FROM v"
        select = parse_script(text)[0].query
        node = kind(**args)
        if place == "expressions":
            select.set("expressions", [node])
        elif place == "from":
            select.args["from_"].set("this", node)
        else:
            select = node
        try:
            QueryBinder(session.catalog, {}, Source(text)).statement(select)
        except PenstockError as err:
            assert str(err)  # noqa: PT017
            continue
        silent.append(kind.__name__)
    assert len(kinds) > 500
    assert silent == []


def test_the_name_of_an_argument_without_a_better_one():
    assert named(exp.Select(), "kind") == (
        "KIND of SELECT",
        "leave it out; docs/sql.md lists what can be written",
    )
