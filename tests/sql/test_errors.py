"""Bad SQL: the message names the place, what was expected, what was found, what is near."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError, SqlError, UnsupportedError
from penstock.sql.scripts import plan_script
from penstock.sql.session import SqlSession

_TABLES = """
CREATE TABLE bids (
  auction BIGINT, price BIGINT, bidder STRING, ts TIMESTAMP(3),
  item AS CAST(ROW(1, bidder) AS ROW<id INT, name STRING>),
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen');
CREATE TABLE auctions (id BIGINT, seller STRING, opened TIMESTAMP(3)) WITH ('connector' = 'datagen');
CREATE TABLE sink (a BIGINT NOT NULL, b STRING) WITH ('connector' = 'blackhole');
CREATE TABLE files (a STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
"""

#: (SQL, line, column, words that must be in the error)
CASES: dict[str, tuple[str, int, int, tuple[str, ...]]] = {
    "misspelt keyword": ("SELEC 1", 1, 1, ("'SELEC'", "SELECT")),
    "unknown column": ("SELECT auction,\n  pirce FROM bids", 2, 3, ("unknown column 'pirce'", "'price'")),
    "unknown qualified column": ("SELECT b.prize FROM bids AS b", 1, 8, ("b.prize", "'price'")),
    "unknown table": ("SELECT *\nFROM bid", 2, 6, ("unknown table 'bid'", "'bids'")),
    "unknown function": ("SELECT\n  UPPR(bidder) FROM bids", 2, 3, ("unknown function UPPR", "UPPER")),
    "unknown field": ("SELECT item.nam FROM bids", 1, 8, ("'nam'", "name")),
    "wrong types": ("SELECT auction FROM bids WHERE bidder + TRUE > 1", 1, 32, ("+",)),
    "condition is no boolean": (
        "SELECT auction FROM bids WHERE price + 1",
        1,
        32,
        ("WHERE", "BOOLEAN", "BIGINT"),
    ),
    "ambiguous column": (
        "SELECT auction FROM bids a JOIN bids b ON a.auction = b.auction",
        1,
        8,
        ("ambiguous", "a.auction"),
    ),
    "not grouped": (
        "SELECT bidder, price, COUNT(*) FROM bids GROUP BY bidder",
        1,
        16,
        ("'price'", "GROUP BY"),
    ),
    "aggregate in WHERE": ("SELECT auction FROM bids WHERE COUNT(*) > 1", 1, 32, ("HAVING",)),
    "nested aggregate": ("SELECT MAX(SUM(price)) FROM bids", 1, 12, ("aggregate inside an aggregate",)),
    "missing operand": ("SELECT auction FROM bids WHERE", 1, 31, ("end of statement",)),
    "trailing comma": ("SELECT auction, FROM bids", 1, 17, ("another item", "'FROM'")),
    "unclosed parenthesis": ("SELECT (price + 1 FROM bids", 1, 19, ("'FROM'",)),
    "a parameter for a value": ("SELECT auction FROM bids WHERE price > ?", 1, 40, ("no parameters", "'?'")),
    "a parameter for a value by name": ("SELECT @limit FROM bids", 1, 8, ("no parameters", "'@'")),
    "a parameter for a new view": (
        "CREATE VIEW @v AS SELECT auction FROM bids",
        1,
        13,
        ("no parameters", "'@'"),
    ),
    "a parameter for a view with a colon": (
        "CREATE VIEW :v AS SELECT auction FROM bids",
        1,
        13,
        ("name", "':'"),
    ),
    "a parameter for a view to drop": ("DROP VIEW IF EXISTS ?", 1, 21, ("no parameters", "'?'")),
    "a parameter for a column": (
        "CREATE TABLE t (@a INT) WITH ('connector' = 'print')",
        1,
        17,
        ("no parameters",),
    ),
    "a parameter for a column of a sink": ("INSERT INTO sink (@a) SELECT 1", 1, 19, ("no parameters", "'@'")),
    "a parameter for a catalog": ("USE CATALOG @c", 1, 13, ("no parameters", "'@'")),
    "a parameter for a database": ("USE ?", 1, 5, ("no parameters", "'?'")),
    "a statement that begins with ELSE": ("ELSE SHOW TABLES", 1, 1, ("beginning of a statement", "'ELSE'")),
    "unclosed string": ("SELECT 'abc FROM bids", 1, 8, ("close the quote",)),
    "unknown type": ("CREATE TABLE t (a INTT) WITH ('connector' = 'print')", 1, 19, ("a type", "'INTT'")),
    "precision too high": (
        "CREATE TABLE t (a TIMESTAMP(9)) WITH ('connector' = 'print')",
        1,
        19,
        ("0 <= p <= 6",),
    ),
    "foreign operator": ("SELECT auction FROM bids WHERE price != 1", 1, 38, ("'!='", "<>")),
    "no time attribute": (
        "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(opened), INTERVAL '1' MINUTE)) "
        "GROUP BY window_start, window_end",
        1,
        62,
        ("not a time attribute", "WATERMARK"),
    ),
    "window size is no interval": (
        "SELECT * FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), 10))",
        1,
        56,
        ("constant interval",),
    ),
    "bad interval": ("SELECT ts - INTERVAL '1:2' SECOND FROM bids", 1, 13, ("not an interval",)),
    "bad timestamp": ("SELECT TIMESTAMP '2024-13-01 00:00:00' FROM bids", 1, 8, ("not a TIMESTAMP",)),
    "column counts of UNION": (
        "SELECT auction FROM bids UNION ALL SELECT id, seller FROM auctions",
        1,
        43,
        ("1 columns", "2 columns"),
    ),
    "too many columns for the table": (
        "INSERT INTO sink SELECT auction, bidder, price FROM bids",
        1,
        25,
        ("3 columns", "takes 2"),
    ),
    "unknown sink": (
        "INSERT INTO snik SELECT auction, bidder FROM bids",
        1,
        13,
        ("unknown table 'snik'", "'sink'"),
    ),
    "unfitting column": (
        "INSERT INTO sink SELECT bidder, bidder FROM bids",
        1,
        25,
        ("BIGINT", "STRING", "CAST"),
    ),
    "column twice": (
        "CREATE TABLE t (a INT,\n a STRING) WITH ('connector' = 'print')",
        2,
        2,
        ("'a' is declared twice",),
    ),
    "watermark on a string": (
        "CREATE TABLE t (a STRING, WATERMARK FOR a AS a) WITH ('connector' = 'print')",
        1,
        41,
        ("event-time column", "STRING"),
    ),
    "unknown setting": ("SET 'parallelism.defualt' = '2'", 1, 1, ("parallelism.default",)),
    "bad setting": ("SET 'parallelism.default' = 'two'", 1, 1, ("whole number", "'two'")),
    "exists already": ("CREATE VIEW bids AS SELECT 1", 1, 1, ("exists already",)),
    "order by position": ("SELECT auction FROM bids ORDER BY 3", 1, 35, ("1 to 1",)),
    "rank without order": ("SELECT ROW_NUMBER() OVER (PARTITION BY bidder) FROM bids", 1, 8, ("ORDER BY",)),
    "open statement set": (
        "BEGIN STATEMENT SET;\nINSERT INTO sink SELECT auction, bidder FROM bids;",
        1,
        1,
        ("END",),
    ),
}

#: Valid SQL that the engine refuses at planning.
REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "unbounded join": (
        "SELECT * FROM bids b JOIN auctions a ON b.auction = a.id",
        ("for ever", "table.exec.state.ttl", "table.exec.join.unbounded-state"),
    ),
    "updates into an append-only table": (
        "INSERT INTO files SELECT bidder, COUNT(*) FROM bids GROUP BY bidder",
        ("only inserts", "files"),
    ),
    "unbounded sort": ("SELECT * FROM auctions ORDER BY seller", ("ORDER BY", "LIMIT")),
    "over without order": ("SELECT SUM(price) OVER (PARTITION BY bidder) FROM bids", ("ORDER BY",)),
    "ranking by something else than time": (
        "SELECT ROW_NUMBER() OVER (PARTITION BY bidder ORDER BY price) FROM bids",
        ("ORDER BY price", "ROW_NUMBER() <= n"),
    ),
    "over without time": (
        "SELECT SUM(price) OVER (PARTITION BY bidder ORDER BY price) FROM bids",
        ("event-time",),
    ),
}


@pytest.fixture
def session() -> SqlSession:
    sql = SqlSession()
    for _ in sql.run_script(_TABLES):
        pass
    return sql


@pytest.mark.parametrize("name", list(CASES))
def test_error_names_its_place(session: SqlSession, name: str) -> None:
    text, line, column, words = CASES[name]
    with pytest.raises(PenstockError) as caught:
        session.execute(text)
    assert f"line {line}, column {column}" in (caught.value.where or ""), str(caught.value)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message", "got", "remedy"),
    [
        ("INSERT INTO sink SELECT auction, bidder, price FROM bids", "gives 3 columns", "price BIGINT", "a, b, in"),
        ("INSERT INTO sink SELECT auction FROM bids", "gives 1 columns", "auction BIGINT", "INTO sink (a)"),
        ("INSERT INTO sink (a) SELECT auction, price FROM bids", "takes 1", "price", "what goes into a,"),
        ("INSERT INTO sink (a, z) SELECT auction, bidder FROM bids", "no column 'z'", "'z'", "DESCRIBE sink"),
        ("INSERT INTO sink (a, a) SELECT auction, price FROM bids", "named twice", "a, a", "leave one out"),
        ("INSERT INTO sink (b) SELECT bidder FROM bids", "NOT NULL", "(b)", "select a value for it"),
        ("INSERT INTO sink VALUES (1, 'a'), (2)", "differ in length", "1", "as many values"),
        ("CREATE FUNCTION f AS 'a.B' LANGUAGE JAVA", "functions in JAVA", "JAVA", "LANGUAGE PYTHON"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_do(
    session: SqlSession, text: str, message: str, got: str, remedy: str
) -> None:
    with pytest.raises(PenstockError, match=message) as caught:
        session.execute(text)
    error = caught.value
    assert error.expected
    assert got in (error.got or "")
    assert (error.where or "").startswith("line 1, column ")
    assert remedy in (error.remedy or "")


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_cannot_run_is_refused_at_planning(session: SqlSession, name: str) -> None:
    text, words = REFUSED[name]
    with pytest.raises(UnsupportedError) as caught:
        session.execute(text)
    for word in words:
        assert word in str(caught.value)


def test_places_count_from_the_start_of_the_script(session: SqlSession) -> None:
    with pytest.raises(SqlError) as caught:
        list(session.run_script("SET 'parallelism.default' = '1';\n\n  SELECT nothing FROM bids;"))
    assert caught.value.where == "line 3, column 10"


def test_error_inside_a_view_names_the_view(session: SqlSession) -> None:
    session.execute("CREATE VIEW v AS SELECT seller FROM auctions")
    session.execute("DROP TABLE auctions")
    with pytest.raises(SqlError) as caught:
        session.execute("SELECT * FROM v")
    assert "view 'v'" in (caught.value.where or "")


def test_a_script_is_inserts_or_one_select() -> None:
    with pytest.raises(SqlError, match="INSERTs, or of one SELECT"):
        plan_script(_TABLES + "SELECT 1; SELECT 2")
    with pytest.raises(SqlError, match="starts no job"):
        plan_script(_TABLES)


@pytest.mark.parametrize(
    ("subquery", "what"),
    [
        ("SELECT LISTAGG(s) FROM p WHERE p.k = o.k", "LISTAGG in a scalar subquery"),
        ("SELECT MAX(w) + w FROM p WHERE p.k = o.k", "a column beside an aggregate"),
    ],
)
def test_a_correlated_scalar_subquery_without_a_value_of_no_rows_is_refused(subquery: str, what: str) -> None:
    sql = SqlSession()
    sql.execute("CREATE VIEW o AS SELECT * FROM (VALUES (1, 2)) AS v(id, k)")
    sql.execute("CREATE VIEW p AS SELECT * FROM (VALUES (2, 5, 'a')) AS v(k, w, s)")
    with pytest.raises(PenstockError, match=what) as caught:
        sql.execute(f"SELECT id, ({subquery}) FROM o")
    assert "line 1, column" in str(caught.value)


def test_an_unknown_column_in_a_scalar_subquery_is_called_unknown() -> None:
    sql = SqlSession()
    sql.execute("CREATE VIEW o AS SELECT * FROM (VALUES (1, 2)) AS v(id, k)")
    with pytest.raises(SqlError, match="unknown column"):
        sql.execute("SELECT id, (SELECT MAX(x) FROM o AS p) FROM o")
