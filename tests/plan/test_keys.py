"""A MAP or MULTISET cannot be a key: refused when the statement is planned."""

from __future__ import annotations

import pytest

from penstock.errors import UnsupportedError
from penstock.sql.session import SqlSession


@pytest.fixture(scope="module")
def session() -> SqlSession:
    made = SqlSession()
    made.execute("CREATE VIEW m AS SELECT MAP['x', v] AS a, v AS b FROM (VALUES (1), (2)) AS t (v)")
    return made


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT COUNT(*) FROM m GROUP BY a", "a group by 'a'"),
        ("SELECT DISTINCT a FROM m", "a group by 'a'"),
        ("SELECT a FROM m UNION SELECT a FROM m", "a group by 'a'"),
        ("SELECT COUNT(DISTINCT a) FROM m", "a DISTINCT aggregate of 'a'"),
        ("SELECT SUM(b) OVER (PARTITION BY a ORDER BY b) FROM m", "PARTITION BY 'a'"),
        ("SELECT a FROM m INTERSECT SELECT a FROM m", "a comparison of whole rows by 'a'"),
        ("SELECT 1 FROM m AS x JOIN m AS y ON x.a = y.a", "a join by 'a'"),
        ("SELECT COUNT(*) FROM (SELECT ROW(a, 1) AS r FROM m) GROUP BY r", "a group by 'r'"),
        ("SELECT COUNT(*) FROM (SELECT COLLECT(b) AS c FROM m) GROUP BY c", "a group by 'c'"),
    ],
)
def test_a_map_as_a_key_is_refused_when_planned(session: SqlSession, query: str, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words) as refused:
        session.execute(query)
    assert refused.value.where == "line 1, column 1"
    assert "MAP_KEYS" in str(refused.value.remedy)


def test_a_map_beside_the_key_is_planned(session: SqlSession) -> None:
    assert session.execute("SELECT b, LAST_VALUE(a) FROM m GROUP BY b").job is not None
