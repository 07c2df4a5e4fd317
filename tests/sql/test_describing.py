"""What a person asks of a catalog and is told: comments, DESCRIBE, kinds, guesses, the client's words."""

from __future__ import annotations

import json

import pytest

from penstock.errors import PenstockError, SqlError, UnsupportedError, nearest
from penstock.sql.session import SqlSession

_DDL = """CREATE TABLE t (
  a INT NOT NULL COMMENT 'the key', twice AS a * 2 COMMENT 'it''s computed', ts TIMESTAMP(3), p AS PROCTIME(),
  at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) COMMENT 'all of it' WITH ('connector' = 'nats', 'subject' = 's', 'format' = 'json')"""


@pytest.fixture
def session():
    made = SqlSession()
    made.execute(_DDL)
    made.execute("CREATE VIEW v COMMENT 'one row' AS SELECT 1 AS x")
    return made


def test_describe_tells_comments_watermark_expressions_and_time_attributes(session):
    described = session.execute("DESCRIBE t")
    assert described.columns == ("name", "type", "null", "key", "extras", "watermark", "comment")
    assert described.rows == (
        ("a", "INT", "FALSE", "", "", "", "the key"),
        ("twice", "INT", "FALSE", "", "AS a * 2", "", "it's computed"),
        ("ts", "TIMESTAMP(3) *ROWTIME*", "TRUE", "", "", "ts - INTERVAL '1' SECOND", ""),
        ("p", "TIMESTAMP_LTZ(3) *PROCTIME*", "FALSE", "", "AS PROCTIME()", "", ""),
        ("at", "TIMESTAMP_LTZ(3)", "FALSE", "", "METADATA FROM 'timestamp' VIRTUAL", "", ""),
    )
    assert session.execute("DESCRIBE v").columns[-1] == "watermark"


@pytest.mark.parametrize("name", ["TABLE t", "VIEW v"])
def test_show_create_keeps_comments(session, name):
    [(shown,)] = session.execute(f"SHOW CREATE {name}").rows
    assert "COMMENT 'all of it'" in shown or "COMMENT 'one row'" in shown
    other = SqlSession()
    other.execute(shown)
    assert other.execute(f"SHOW CREATE {name}").rows == ((shown,),)


def test_a_declared_comment_of_a_table_is_kept_by_like_and_alter(session):
    session.execute("ALTER VIEW v AS SELECT 2 AS x")
    assert "one row" in session.execute("SHOW CREATE VIEW v").rows[0][0]
    session.execute("CREATE TABLE u LIKE t (EXCLUDING WATERMARKS)")
    assert session.execute("DESCRIBE u").rows[0][-1] == "the key"


#: (statement, where, words of the error)
REFUSED = [
    (
        "CREATE TABLE c1.db1.x (a INT) WITH ('connector' = 'print')",
        "line 1, column 1",
        "unknown catalog 'c1'",
    ),
    (
        "CREATE TABLE db1.x (a INT) WITH ('connector' = 'print')",
        "line 1, column 1",
        "unknown database 'db1'",
    ),
    ("DROP TABLE IF EXISTS c1.db1.x", "line 1, column 1", "unknown catalog 'c1'"),
    ("INSERT INTO db1.t SELECT 1", "line 1, column 13", "unknown database 'db1'"),
    ("DROP TABLE v", "line 1, column 1", "DROP VIEW v"),
    ("DROP VIEW t", "line 1, column 1", "DROP TABLE t"),
    ("SHOW CREATE TABLE v", "line 1, column 1", "SHOW CREATE VIEW v"),
    ("SHOW CREATE VIEW t", "line 1, column 1", "SHOW CREATE TABLE t"),
    ("SELECT 1;\nSELECT 2 /* and\n then SELECT 3;", "line 2, column 10", "a comment is not closed"),
    ("CREATE TABLE x (a INT, d STRING) PARTITIONED BY (d) WITH ('connector' = 'print')",
     "line 1, column 34", "PARTITIONED BY with connector 'print'"),
    ("CREATE TABLE x (a INT) DISTRIBUTED BY (a) WITH ('connector' = 'filesystem')", "line 1, column 24",
     "DISTRIBUTED BY"),
    ("EXPLAIN CHANGELOG_MODE, SELECT 1", "line 1, column 25", "another detail"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "where", "words"), REFUSED)
def test_what_is_not_there_is_refused_with_its_place(session, statement, where, words):
    with pytest.raises(PenstockError) as caught:
        list(session.run_script(statement))
    assert words in str(caught.value)
    assert caught.value.where == where


def test_a_full_name_of_the_one_catalog_is_its_table(session):
    session.execute("CREATE TABLE default_catalog.default_database.x (a INT) WITH ('connector' = 'print')")
    assert "x" in session.catalog.tables
    assert session.execute("DROP TABLE IF EXISTS v").message == "no table 'v'"


def test_guesses_only_at_what_is_near_and_of_the_same_kind():
    assert nearest("delta", ["datagen", "jdbc"]) is None
    assert nearest("tan", ["any"]) is None
    assert nearest("pirce", ["price", "bidder"]) == "did you mean 'price'?"
    assert nearest("UPPR", ["UPPER", "LOWER"]) == "did you mean 'UPPER'?"
    assert nearest("parallelism", ["parallelism.default"]) == "did you mean 'parallelism.default'?"


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("SELECT ANY(1)", "did you mean"),
        ("CREATE TABLE x (a INT) WITH ('connector' = 'hudi')", "did you mean"),
        ("CREATE TABLE x (a INT) WITH ('connector' = 'filesystem', 'path' = 'p', 'format' = 'debezium-json'); "
         "SELECT * FROM x", "add 'format'"),
        ("CREATE OR REPLACE FUNCTION f AS 'a.b' LANGUAGE PYTHON", "did you mean UNION"),
    ],
)  # fmt: skip
def test_no_guess_where_nothing_is_near(statement, unwanted):
    with pytest.raises(PenstockError) as caught:
        list(SqlSession().run_script(statement))
    assert unwanted not in str(caught.value)


def test_explain_takes_several_details(session):
    text = session.execute(
        "EXPLAIN ESTIMATED_COST, CHANGELOG_MODE, PLAN_ADVICE, JSON_EXECUTION_PLAN SELECT x FROM v"
    ).message
    plan = json.loads(text.split("== Physical Execution Plan ==")[1])
    assert plan["nodes"][0]["parallelism"] == 1
    assert [n["predecessors"] != [] for n in plan["nodes"]].count(False) >= 1


@pytest.mark.parametrize("word", ["QUIT", "EXIT", "CLEAR", "HELP"])
def test_a_word_for_the_client_is_named_outside_of_it(session, word):
    with pytest.raises(UnsupportedError, match=f"{word} outside the SQL client"):
        session.execute(word)
    with pytest.raises(SqlError):
        session.execute(f"{word} now")
