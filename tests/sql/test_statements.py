"""Statements other than queries: CREATE … AS, ALTER, SHOW, INSERT OVERWRITE, and what is refused by name."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError, SqlError, UnsupportedError
from penstock.sql.refused import REFUSED
from penstock.sql.scripts import plan_script
from penstock.sql.session import SqlSession
from penstock.testing import run_graph


def run(session: SqlSession, script: str) -> list:
    """Runs every job; the last statement's rows."""
    out: list = []
    for result in session.run_script(script):
        if result.job is not None:
            out = sorted(run_graph(result.job.job_graph).rows, key=str)
        else:
            out = list(result.rows)
    return out


@pytest.fixture
def session():
    made = SqlSession()
    run(made, "CREATE VIEW v AS SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS x(id, g)")
    return made


def files(tmp_path, name: str, more: str = "") -> str:
    return f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/{name}', 'format' = 'csv' {more})"


def test_create_table_as_declares_and_fills(session, tmp_path):
    assert run(
        session, f"CREATE TABLE c {files(tmp_path, 'c')} AS SELECT id, g AS `the g` FROM v; SELECT * FROM c"
    ) == [
        (1, "a"),
        (2, "b"),
    ]


def test_create_table_as_with_columns_of_its_own(session, tmp_path):
    script = f"""
    CREATE TABLE c (id BIGINT, note INT, twice AS id * 2) {files(tmp_path, "c")} AS SELECT g, id FROM v;
    SELECT * FROM c;
    """
    assert run(session, script) == [(1, None, 2, "a"), (2, None, 4, "b")]
    assert [row[:2] for row in run(session, "DESCRIBE c")] == [
        ("id", "BIGINT"), ("note", "INT"), ("twice", "BIGINT"), ("g", "CHAR(1)"),
    ]  # fmt: skip


def test_create_table_as_in_a_job_spec_and_when_it_exists(session, tmp_path):
    text = f"CREATE TABLE c {files(tmp_path, 'c')} AS SELECT 1 AS one"
    assert plan_script(text).kind == "insert"
    run(session, text)
    again = session.execute(text.replace("TABLE c", "TABLE IF NOT EXISTS c"))
    assert (again.kind, again.message) == ("ddl", "table 'c' exists already")
    with pytest.raises(SqlError, match="'c' exists already"):
        session.execute(text)


def test_insert_overwrite_replaces_all_files(session, tmp_path):
    run(session, f"CREATE TABLE c (id INT, g STRING) {files(tmp_path, 'c')}; INSERT INTO c SELECT * FROM v;")
    (tmp_path / "c" / "other.csv").write_text("9,z\n")
    assert run(session, "SELECT COUNT(*) FROM c") == [(3,)]
    assert run(session, "INSERT OVERWRITE c SELECT id + 10, g FROM c; SELECT * FROM c") == [
        (11, "a"), (12, "b"), (19, "z"),
    ]  # fmt: skip
    run(session, "INSERT OVERWRITE c SELECT * FROM v WHERE id > 5")
    assert [p.name for p in (tmp_path / "c").iterdir() if not p.name.startswith("_")] == []


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("INSERT OVERWRITE p SELECT * FROM v", "INSERT OVERWRITE into connector 'print'"),
        ("INSERT OVERWRITE c SELECT a, 'x' FROM d", "INSERT OVERWRITE of an unbounded query"),
        ("BEGIN STATEMENT SET; INSERT OVERWRITE c SELECT * FROM v; INSERT INTO c SELECT * FROM v; END",
         "INSERT OVERWRITE beside another INSERT into table 'c'"),
    ],
)  # fmt: skip
def test_insert_overwrite_that_cannot_be(session, tmp_path, script, message):
    run(session, f"""CREATE TABLE c (id INT, g STRING) {files(tmp_path, 'c')};
        CREATE TABLE p (id INT, g STRING) WITH ('connector' = 'print');
        CREATE TABLE d (a INT) WITH ('connector' = 'datagen');""")  # fmt: skip
    with pytest.raises(UnsupportedError, match=message) as caught:
        run(session, script)
    assert "line 1" in caught.value.where


def test_show_create_table_gives_a_statement_that_runs(session):
    ddl = """CREATE TEMPORARY TABLE t (`a b` INT NOT NULL, c AS `a b` + 1, ts TIMESTAMP(3),
      at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND,
      PRIMARY KEY (`a b`) NOT ENFORCED) WITH ('connector' = 'nats', 'subject' = 'it''s', 'format' = 'json')"""
    run(session, ddl)
    described = run(session, "DESCRIBE t")
    [(shown,)] = run(session, "SHOW CREATE TABLE t")
    other = SqlSession()
    run(other, shown)
    assert run(other, "DESCRIBE t") == described
    assert other.catalog.tables["t"].options == session.catalog.tables["t"].options
    assert run(other, "SHOW CREATE TABLE t") == [(shown,)]


def test_alter_table_and_view(session):
    run(session, "CREATE TABLE t (a INT) WITH ('connector' = 'datagen', 'number-of-rows' = '3')")
    run(session, "ALTER TABLE t SET ('number-of-rows' = '2', 'seed' = '7'); ALTER TABLE t RESET ('seed')")
    run(session, "ALTER TABLE t RENAME TO u; ALTER TABLE IF EXISTS gone RENAME TO x")
    assert session.catalog.tables["u"].options["number-of-rows"] == "2"
    assert run(session, "SELECT COUNT(*) FROM u") == [(2,)]
    run(
        session,
        "ALTER VIEW v AS SELECT id * 2 AS twice FROM (VALUES (1), (2)) AS x(id); ALTER VIEW v RENAME TO w",
    )
    assert run(session, "SELECT * FROM w") == [(2,), (4,)]
    assert "SELECT id * 2 AS twice" in run(session, "SHOW CREATE VIEW w")[0][0]
    with pytest.raises(SqlError, match="has no option 'sed'"):
        run(session, "ALTER TABLE u RESET ('sed')")
    with pytest.raises(SqlError, match="'w' exists already"):
        run(session, "ALTER TABLE u RENAME TO w")


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("SHOW TABLES LIKE 'a%'", [("ab",)]),
        ("SHOW TABLES FROM default_database NOT LIKE '_b'", [("v",)]),
        ("SHOW VIEWS ILIKE 'V'", [("v",)]),
        ("SHOW COLUMNS IN ab LIKE 'a'", [("a", "INT", "TRUE", "", "", "")]),
        ("SHOW MODULES", [("core",)]),
        ("SHOW FUNCTIONS LIKE 'upper'", [("UPPER",)]),
        ("SHOW FUNCTIONS LIKE 'UPPER'", [("UPPER",)]),
        ("SHOW FUNCTIONS LIKE 'Upper'", []),
        (r"SHOW FUNCTIONS LIKE 'array\_rem%'", [("ARRAY_REMOVE",)]),
        (r"SHOW FUNCTIONS LIKE 'arra\_%'", []),
        ("SHOW FUNCTIONS ILIKE 'upper'", [("UPPER",)]),
        ("DESCRIBE EXTENDED ab", [("a", "INT", "TRUE", "", "", "")]),
    ],
)  # fmt: skip
def test_show(session, statement, rows):
    run(session, "CREATE TABLE ab (a INT) WITH ('connector' = 'print')")
    assert run(session, statement) == rows


def test_explain_of_a_statement_set(session):
    run(session, "CREATE TABLE p (id INT) WITH ('connector' = 'print')")
    for opening in ("EXPLAIN STATEMENT SET BEGIN", "EXPLAIN PLAN FOR STATEMENT SET BEGIN"):
        script = f"{opening} INSERT INTO p SELECT id FROM v; INSERT INTO p SELECT 7; END"
        [result] = list(session.run_script(script))
        assert result.kind == "text"
        assert result.message.count("Sink: p") >= 2


@pytest.mark.parametrize("words", sorted(REFUSED))
def test_statements_that_are_refused_say_so_by_name(session, words):
    with pytest.raises(UnsupportedError, match=f"the statement {words}") as caught:
        session.execute(f"{words} x")
    assert caught.value.where == "line 1, column 1"
    assert caught.value.remedy == REFUSED[words]


#: script → where, part of the message, part of the remedy
WRONG = {
    "option of a table": (
        "CREATE TABLE x (a INT)\nWITH ('connector' = 'datagen',\n  'rows-per-secnd' = '1'); SELECT * FROM x",
        "line 3, column 3", "unknown option 'rows-per-secnd'", "'rows-per-second'"),
    "value of an option": (
        "CREATE TABLE x (a INT)\nWITH ('connector' = 'datagen',\n  'rows-per-second' = 'many'); SELECT * FROM x",
        "line 3, column 23", "not a whole number", "rows-per-second"),
    "connector": (
        "CREATE TABLE x (a INT) WITH (\n'connector' = 'datagn')", "line 2, column 15", "unknown connector 'datagn'", "'datagen'"),
    "format": (
        "CREATE TABLE x (a INT) WITH ('connector' = 'filesystem', 'path' = '/tmp',\n'format' = 'jsn'); SELECT * FROM x",
        "line 2, column 12", "unknown format 'jsn'", "'json'"),
    "option changed by ALTER": (
        "CREATE TABLE x (a INT) WITH ('connector' = 'datagen');\nALTER TABLE x SET ('sed' = '1'); SELECT * FROM x",
        "line 2, column 20", "unknown option 'sed'", "'seed'"),
    "option of a hint": (
        "CREATE TABLE x (a INT) WITH ('connector' = 'datagen');\nSELECT * FROM x /*+ OPTIONS('sed' = '1') */",
        "line 2, column 29", "unknown option 'sed'", "'seed'"),
    "option of an insert's hint": (
        "CREATE TABLE x (a INT) WITH ('connector' = 'print');\nINSERT INTO x /*+ OPTIONS('standard-eror' = 'true') */ SELECT 1",
        "line 2, column 27", "unknown option 'standard-eror'", "'standard-error'"),
    "type": ("CREATE TABLE x (a BIGNT) WITH ('connector' = 'print')", "line 1, column 19", "unknown type 'BIGNT'", "'BIGINT'"),
    "type in CAST": ("SELECT CAST(1 AS\nSTRNG)", "line 2, column 1", "unknown type 'STRNG'", "'STRING'"),
    "statement": ("SELCT 1", "line 1, column 1", "syntax error at 'SELCT'", "SELECT"),
    "kind of object": ("CREATE TABEL x (a INT)", "line 1, column 8", "syntax error at 'TABEL'", "TABLE"),
    "clause": ("SELECT id FROM v WERE id = 1", "line 1, column 23", "syntax error at 'id'", "WHERE for 'WERE'"),
    "two letters": ("SELECT id FROM v GROUP YB id", "line 1, column 24", "syntax error at 'YB'", "BY"),
    "join": ("SELECT * FROM v JION v AS w ON TRUE", "line 1, column 22", "syntax error at 'v'", "JOIN for 'JION'"),
    "watermark": ("CREATE TABLE x (a INT, WATERMRK FOR a AS a) WITH ('connector' = 'print')", "line 1, column 33",
                  "unknown type 'FOR'", "WATERMARK"),
    "table": ("SELECT * FROM vv", "line 1, column 15", "unknown table 'vv'", "'v'"),
    "column": ("SELECT v.idd FROM v", "line 1, column 8", "unknown column 'v.idd'", "'id'"),
    "function": ("SELECT UPER(g) FROM v", "line 1, column 8", "unknown function UPER", "'UPPER'"),
    "window function": ("SELECT * FROM TABLE(TUMBEL(TABLE v, DESCRIPTOR(id), INTERVAL '1' SECOND))", "line 1, column 21",
                        "unknown table function 'TUMBEL'", "'TUMBLE'"),
    "setting": ("SET 'paralelism.default' = '2'", "line 1, column 1", "unknown configuration key", "'parallelism.default'"),
    "unlike any setting": ("SET 'nope.key' = '2'", "line 1, column 1", "unknown configuration key 'nope.key'", ""),
    "time zone": ("SET 'table.local-time-zone' = 'Mars/Olympus'", "line 1, column 1", "unknown time zone", ""),
    "alias": ("SELECT o.id FROM v AS o JOIN v AS o ON TRUE", "line 1, column 8", "column 'o.id' is ambiguous", "another alias: 'o'"),
    "pattern": ("SELECT * FROM v MATCH_RECOGNIZE (ORDER BY id MEASURES A.id AS x PATTERN (A) DEFINE A AS TRUE)",
                "line 1, column 17", "MATCH_RECOGNIZE", "LAG"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_place_and_what_was_meant(session, name):
    script, where, message, remedy = WRONG[name]
    with pytest.raises(PenstockError) as caught:
        run(session, script)
    err = caught.value
    assert err.where.startswith(where), err
    assert message in err.message
    assert remedy in (err.remedy or ""), err
    assert name == "pattern" or (err.expected and err.got)
