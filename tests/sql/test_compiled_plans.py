"""COMPILE PLAN, EXECUTE PLAN, COMPILE AND EXECUTE PLAN, EXPLAIN 'file'; files that are refused."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.filesystem.paths import working_folder
from penstock.errors import (
    ConnectorError,
    ExternalError,
    FunctionError,
    PenstockError,
    SnapshotError,
    SpecError,
    SqlError,
)
from penstock.jobgraph import JobGraph
from penstock.plan.compiled import VERSION, decode_plan, encode_plan
from penstock.plan.engine import SparkSupport
from penstock.sql.results import StatementResult
from penstock.sql.scripts import plan_in
from penstock.sql.session import SqlSession
from penstock.sql.statements import CompilePlan
from tests.plan.identity.earlier_jobs import tables
from tests.plan.identity.restoring import finished, fit, savepoint

#: Plans that were written once; every later version reads them.
STORED = Path(__file__).parent / "plans"
CONFIG = {
    "execution.engine": "streaming",
    "execution.runtime-mode": "STREAMING",
    "table.exec.state.ttl": "1 d",
}
TABLES = """
CREATE TABLE orders (id BIGINT, k STRING, v BIGINT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts)
  WITH ('connector' = 'memory', 'name' = 'orders');
CREATE TABLE one (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'memory', 'name' = 'one');
CREATE TABLE two (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'memory', 'name' = 'two');
"""
ONE = "INSERT INTO one SELECT UPPER(k), SUM(v) FROM orders WHERE v > 1 GROUP BY UPPER(k)"
TWO = "INSERT INTO two SELECT k, MAX(v) FROM orders GROUP BY k"


@pytest.fixture(autouse=True)
def memory_tables() -> None:
    tables()


def session(folder: Path, **config: str) -> SqlSession:
    return SqlSession({**CONFIG, **config}, folder=str(folder))


def declared(folder: Path, **config: str) -> SqlSession:
    made = session(folder, **config)
    for _ in made.run_script(TABLES):
        pass
    return made


def graph(result: StatementResult) -> JobGraph:
    assert result.kind == "job"
    assert result.job is not None
    return result.job.job_graph


def sums(job: JobGraph) -> dict[str, int]:
    """The last row of each key: how many updates come before it depends on the batches."""
    return dict(row for _, row in finished(job, None)["one"])


def uids(job: JobGraph) -> list[str]:
    return [node.uid for vertex in job.vertices for node in vertex.operators]


STATEMENTS = {
    "an insert": (f"COMPILE PLAN 'p.json' FOR {ONE}", [ONE]),
    "a statement set": (f"COMPILE PLAN 'p.json' FOR STATEMENT SET BEGIN {ONE}; {TWO}; END", [ONE, TWO]),
    "the older words": (f"COMPILE PLAN 'p.json' FOR BEGIN STATEMENT SET; {ONE}; {TWO}; END", [ONE, TWO]),
    "with EXECUTE": (f"COMPILE PLAN 'p.json' FOR EXECUTE STATEMENT SET BEGIN {TWO}; END", [TWO]),
    "if it is not there": (f"COMPILE PLAN 'p.json' IF NOT EXISTS FOR {TWO}", [TWO]),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_plan_gives_the_job_of_its_statement(tmp_path: Path, name: str) -> None:
    statement, inserts = STATEMENTS[name]
    here = declared(tmp_path)
    assert here.execute(statement).kind == "ddl"
    want = graph(here.execute("EXECUTE STATEMENT SET BEGIN " + "; ".join(inserts) + "; END"))
    got = graph(session(tmp_path).execute("EXECUTE PLAN 'p.json'"))
    assert uids(got) == uids(want)
    assert encode_plan(got) == encode_plan(want)
    assert (got.name, got.plan, got.edges) == (want.name, want.plan, want.edges)


def test_a_plan_does_not_depend_on_where_its_statement_stands(tmp_path: Path) -> None:
    here = declared(tmp_path)
    here.execute(f"COMPILE PLAN 'first.json' FOR {ONE}")
    for _ in here.run_script(
        f"\n\n  -- a comment\nEXPLAIN {TWO};\n   COMPILE PLAN 'second.json' FOR\n  {ONE};"
    ):
        pass
    assert (tmp_path / "first.json").read_bytes() == (tmp_path / "second.json").read_bytes()
    text = (tmp_path / "first.json").read_text()
    assert str(tmp_path) not in text


def test_it_runs_and_goes_on_from_a_savepoint_as_the_statement_does(tmp_path: Path) -> None:
    here = declared(tmp_path)
    here.execute(f"COMPILE PLAN 'p.json' FOR {ONE}")
    planned = graph(here.execute(ONE))
    stored = graph(session(tmp_path).execute("EXECUTE PLAN 'p.json'"))
    whole = sums(planned)
    assert len(whole) == 3
    assert sums(stored) == whole
    manifest, _ = savepoint(planned)
    rest = finished(fit(stored, manifest), manifest)["one"]
    assert dict(row for _, row in rest) == whole


# -- files that are there -----------------------------------------------------------------------


def test_a_file_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    here = declared(tmp_path)
    here.execute(f"COMPILE PLAN 'p.json' FOR {ONE}")
    before = (tmp_path / "p.json").read_bytes()
    with pytest.raises(SpecError, match="there already") as refused:
        here.execute(f"COMPILE PLAN 'p.json' FOR {TWO}")
    assert "table.plan.force-recompile" in str(refused.value.remedy)
    kept = here.execute(f"COMPILE PLAN 'p.json' IF NOT EXISTS FOR {TWO}")
    assert "was there; the statement was not compiled" in kept.message
    assert (tmp_path / "p.json").read_bytes() == before
    here.execute("SET 'table.plan.force-recompile' = 'true'")
    here.execute(f"COMPILE PLAN 'p.json' FOR {TWO}")
    assert uids(graph(here.execute("EXECUTE PLAN 'p.json'"))) == uids(graph(here.execute(TWO)))


def test_compile_and_execute_compiles_once(tmp_path: Path) -> None:
    here = declared(tmp_path)
    first = here.execute(f"COMPILE AND EXECUTE PLAN 'p.json' FOR {ONE}")
    assert "was written" in first.message
    again = here.execute(f"COMPILE AND EXECUTE PLAN 'p.json' FOR STATEMENT SET BEGIN {TWO}; END")
    assert "was there; the statement was not compiled" in again.message
    assert encode_plan(graph(again)) == encode_plan(graph(first))
    assert graph(first).name == "insert-into_one"


def test_a_statement_that_cannot_be_planned_leaves_no_file(tmp_path: Path) -> None:
    here = declared(tmp_path)
    with pytest.raises(SqlError):
        here.execute("COMPILE PLAN 'below/p.json' FOR INSERT INTO one SELECT nothing FROM orders")
    assert not list(tmp_path.iterdir())
    here.execute(f"COMPILE PLAN 'below/p.json' FOR {ONE}")
    assert [f.name for f in (tmp_path / "below").iterdir()] == ["p.json"]
    assert stat.S_IMODE((tmp_path / "below" / "p.json").stat().st_mode) == 0o600


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(ExternalError, match="cannot be written"):
        declared(tmp_path).execute(f"COMPILE PLAN 'file/p.json' FOR {ONE}")


def test_a_plan_in_an_object_store(tmp_path: Path) -> None:
    here = declared(tmp_path)
    path = f"file://{tmp_path}/with%20space.json"
    here.execute(f"COMPILE PLAN '{path}' FOR {ONE}")
    assert (tmp_path / "with space.json").is_file()
    assert uids(graph(here.execute(f"EXECUTE PLAN '{path}'"))) == uids(graph(here.execute(ONE)))


def test_explain_shows_the_stored_plan(tmp_path: Path) -> None:
    here = declared(tmp_path)
    here.execute(f"COMPILE PLAN 'p.json' FOR {ONE}")
    want = here.execute(f"EXPLAIN {ONE}").message
    bare = session(tmp_path)
    for words in ("EXPLAIN PLAN FOR 'p.json'", "EXPLAIN 'p.json'", "EXPLAIN EXECUTE PLAN 'p.json'"):
        assert bare.execute(words).message == want
    detailed = bare.execute("EXPLAIN JSON_EXECUTION_PLAN 'p.json'").message
    assert detailed.startswith(want)
    assert "Physical Execution Plan" in detailed


# -- scripts --------------------------------------------------------------------------------------


def test_a_script_that_is_one_job(tmp_path: Path) -> None:
    declared(tmp_path).execute(f"COMPILE PLAN 'p.json' FOR {ONE}")
    job = plan_in(session(tmp_path), "SET 'pipeline.name' = 'mine'; EXECUTE PLAN 'p.json';")
    assert (job.kind, job.job_graph.name) == ("insert", "mine")
    both = f"{TABLES} COMPILE AND EXECUTE PLAN 'q.json' FOR {TWO};"
    assert plan_in(session(tmp_path), both).job_graph.name == "insert-into_two"
    for beside in (TWO, "SELECT k FROM orders", "EXECUTE PLAN 'p.json'"):
        with pytest.raises(SqlError, match="a job of its own"):
            plan_in(session(tmp_path), f"{TABLES} EXECUTE PLAN 'p.json'; {beside};")


def test_relative_paths_need_a_folder(tmp_path: Path) -> None:
    declared(tmp_path).execute(f"COMPILE PLAN 'p.json' FOR {ONE}")
    token = working_folder.set(None)
    try:
        elsewhere = SqlSession(CONFIG)
        with pytest.raises(SpecError, match="relative path"):
            elsewhere.execute("EXECUTE PLAN 'p.json'")
        assert graph(elsewhere.execute(f"EXECUTE PLAN '{tmp_path}/p.json'")).vertices
    finally:
        working_folder.reset(token)


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("COMPILE PLAN p FOR INSERT INTO one SELECT k, v FROM orders", "a plan's path in quotes"),
        ("COMPILE PLAN 'p' INSERT INTO one SELECT k, v FROM orders", "FOR and an INSERT"),
        ("COMPILE PLAN 'p' FOR SELECT 1", "an INSERT or a STATEMENT SET behind FOR"),
        ("COMPILE PLAN 'p' FOR", "at end of statement"),
        ("COMPILE 'p' FOR SELECT 1", "COMPILE AND EXECUTE PLAN 'file' FOR"),
        ("EXECUTE PLAN", "a plan's path in quotes"),
        ("EXECUTE PLAN 'p' 'q'", "the end of the statement"),
        ("EXPLAIN COMPILE PLAN 'p' FOR INSERT INTO one SELECT k, v FROM orders", "has no plan"),
        ("COMPILE PLAN 'p' FOR STATEMENT SET BEGIN SELECT 1; END", "holds only INSERT"),
    ],
)
def test_words_that_are_refused(tmp_path: Path, statement: str, says: str) -> None:
    with pytest.raises(SqlError, match=says) as refused:
        declared(tmp_path).execute(statement)
    assert str(refused.value.where).startswith("line 1")


def test_a_set_keeps_the_words_before_it() -> None:
    from penstock.sql.parsing import parse_script

    text = f"COMPILE AND EXECUTE PLAN 'for' IF NOT EXISTS FOR EXECUTE BEGIN STATEMENT SET; {ONE}; {TWO}; END;"
    (made,) = parse_script(text)
    assert isinstance(made, CompilePlan)
    assert (made.path, made.if_not_exists, made.execute) == ("for", True, True)
    assert [i.table for i in made.statement.inserts] == ["one", "two"]  # type: ignore[union-attr]


# -- what does not run here ------------------------------------------------------------------------


def sealed(document: dict[str, Any]) -> bytes:
    """With the checksum of what it now holds: as another version would have written it."""
    content = {key: value for key, value in document.items() if key != "checksum"}
    compact = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({**content, "checksum": hashlib.sha256(compact).hexdigest()}).encode()


def replacing(old: str, new: str) -> Callable[[dict[str, Any]], bytes]:
    def change(document: dict[str, Any]) -> bytes:
        text = json.dumps(document)
        assert old in text
        return sealed(json.loads(text.replace(old, new)))

    return change


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], bytes], type[PenstockError], str]] = {
    "a newer version": (
        lambda d: json.dumps({**d, "penstockPlanVersion": VERSION + 1, "writtenBy": "9.9"}).encode(),
        SpecError,
        f"version {VERSION + 1}, written by Penstock 9.9",
    ),
    "no version": (lambda d: b'{"a": 1}', SpecError, "no compiled plan of Penstock"),
    "Flink's": (lambda d: b'{"flinkVersion": "2.0", "nodes": []}', SpecError, "a compiled plan of Flink's"),
    "cut off": (lambda d: json.dumps(d).encode()[:-100], SpecError, "damaged: it is not JSON"),
    "another value": (lambda d: json.dumps(d).replace("SUM", "MAX").encode(), SpecError, "damaged: its checksum"),
    "a part less": (lambda d: sealed({k: v for k, v in d.items() if k != "jobGraph"}), SpecError, "part of it is"),
    "nested": (lambda d: b"[" * 100_000, SpecError, "nested too deeply"),
    "an operator": (replacing('"op": "group-aggregate"', '"op": "no-operator"'), SpecError, "no-operator"),
    "a connector": (
        replacing('"connector": "memory"', '"connector": "nowhere"'), ConnectorError, "unknown connector 'nowhere'",
    ),
    "a connector of one's own": (
        replacing('"connector": "memory"', '"connector": "python:no_module:Made"'), ConnectorError, "no_module",
    ),
    "a function": (replacing('"function": "UPPER"', '"function": "NO_SUCH"'), SqlError, "NO_SUCH"),
    "an aggregate": (replacing('"function": "SUM"', '"function": "NO_SUCH"'), SpecError, "NO_SUCH"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_is_refused_names_itself_and_what_is_missing(tmp_path: Path, name: str) -> None:
    change, error, says = REFUSED[name]
    declared(tmp_path).execute(f"COMPILE PLAN 'p.json' FOR {ONE}")
    file = tmp_path / "p.json"
    file.write_bytes(change(json.loads(file.read_bytes())))
    with pytest.raises(error) as refused:
        session(tmp_path).execute("EXECUTE PLAN 'p.json'")
    assert says in str(refused.value)
    assert "p.json" in str(refused.value.where)
    assert refused.value.remedy


def test_a_plan_that_was_laid_out_anew_is_no_damage(tmp_path: Path) -> None:
    declared(tmp_path).execute(f"COMPILE PLAN 'p.json' FOR {ONE}")
    file = tmp_path / "p.json"
    before = graph(session(tmp_path).execute("EXECUTE PLAN 'p.json'"))
    file.write_text(json.dumps(json.loads(file.read_text()), sort_keys=True))
    assert graph(session(tmp_path).execute("EXECUTE PLAN 'p.json'")) == before


@pytest.mark.parametrize("path", ["nothing.json", "folder"])
def test_a_plan_that_is_not_there(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(SpecError, match=r"no such compiled plan|a folder is no compiled plan") as refused:
        session(tmp_path).execute(f"EXECUTE PLAN '{path}'")
    assert path in str(refused.value.where)


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("parallelism.default", "3", True),
        ("parallelism.default", "1", False),
        ("table.exec.state.ttl", "2 d", True),
        ("table.exec.state.ttl", "24 h", False),
        ("table.dml-sync", "true", False),
        ("execution.engine", "spark", True),
        ("execution.engine", "auto", False),
        ("execution.checkpointing.interval", "9 s", False),
    ],
)
def test_settings_that_would_need_another_plan_are_refused(
    tmp_path: Path, key: str, value: str, refused: bool
) -> None:
    declared(tmp_path).execute(f"COMPILE PLAN 'p.json' FOR {ONE}")
    other = SqlSession({key: value}, folder=str(tmp_path))
    if refused:
        with pytest.raises(SpecError, match="the plan was compiled"):
            other.execute("EXECUTE PLAN 'p.json'")
    else:
        assert graph(other.execute("EXECUTE PLAN 'p.json'")).config[key] == value


def test_what_one_start_was_given_is_not_in_the_plan(tmp_path: Path) -> None:
    start = {"execution.state-recovery.path": "/a/savepoint", "execution.state-recovery.keep-state": "uid"}
    declared(tmp_path, **start).execute(f"COMPILE PLAN 'p.json' FOR {ONE}")
    assert "state-recovery" not in (tmp_path / "p.json").read_text()
    assert (
        "execution.state-recovery.path"
        not in graph(session(tmp_path).execute("EXECUTE PLAN 'p.json'")).config
    )


@pytest.mark.parametrize("path", ["", "/manifest"])
def test_a_savepoint_is_a_plan_too(tmp_path: Path, path: str) -> None:
    here = declared(tmp_path)
    folder = tmp_path / "savepoint-1"
    folder.mkdir()
    (folder / "manifest").write_text("{}")
    for url in (f"{folder}{path}", f"file://{folder}{path}"):
        with pytest.raises(SnapshotError, match="holds no plan"):
            here.execute(f"EXECUTE PLAN '{url}'")
    want = graph(here.execute(ONE))
    (folder / "plan.json").write_bytes(encode_plan(want))
    for url in (f"{folder}{path}", f"file://{folder}{path}", f"savepoint-1{path}"):
        assert uids(graph(session(tmp_path).execute(f"EXECUTE PLAN '{url}'"))) == uids(want)


def test_a_savepoint_of_a_query_gives_its_rows_again(tmp_path: Path) -> None:
    here = declared(tmp_path)
    query = here.execute("SELECT k, COUNT(*) AS n FROM orders GROUP BY k").job
    assert query is not None
    (tmp_path / "plan.json").write_bytes(encode_plan(query.job_graph))
    again = session(tmp_path).execute(f"EXECUTE PLAN '{tmp_path}'").job
    assert again is not None
    assert (again.kind, again.mode, again.result_keys) == (query.kind, query.mode, query.result_keys)
    assert again.result_schema == query.result_schema


# -- Python functions, Spark, old plans ---------------------------------------------------------


def test_functions_travel_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "shouting_functions.py"
    module.write_text(
        "from penstock.api import udf\n\n@udf(result_type='STRING')\ndef shout(text):\n"
        "    import json\n    return json.dumps(text)\n"
    )
    here = declared(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    here.execute("CREATE FUNCTION shout AS 'shouting_functions.shout' LANGUAGE PYTHON")
    insert = "INSERT INTO one SELECT shout(k), SUM(v) FROM orders GROUP BY shout(k)"
    here.execute(f"COMPILE PLAN 'p.json' FOR {insert}")
    module.unlink()
    stored = graph(session(tmp_path).execute("EXECUTE PLAN 'p.json'"))
    want = sums(graph(here.execute(insert)))
    assert set(want) == {'"a"', '"b"', '"c"'}
    assert sums(stored) == want

    file = tmp_path / "p.json"
    document = json.loads(file.read_bytes())
    file.write_bytes(sealed({**document, "python": "3.0"}))
    with pytest.raises(SpecError, match="another version of Python") as refused:
        session(tmp_path).execute("EXECUTE PLAN 'p.json'")
    assert "shout" in str(refused.value.got)

    missing = {"module": "no_such_module", "qualname": "shout", "data": None, "key": None, "classes": []}
    document["jobGraph"]["functions"]["shout"] = missing
    file.write_bytes(sealed(document))
    with pytest.raises(FunctionError, match=r"'shout' cannot be loaded.*no_such_module"):
        session(tmp_path).execute("EXECUTE PLAN 'p.json'")
    del document["jobGraph"]["functions"]["shout"]
    file.write_bytes(sealed(document))
    with pytest.raises(SpecError, match="calls functions that it does not hold: shout"):
        session(tmp_path).execute("EXECUTE PLAN 'p.json'")


def test_a_plan_for_spark_is_read_by_people_and_needs_spark(tmp_path: Path) -> None:
    spark = SparkSupport(missing=None, check=lambda _: None)
    here = SqlSession({"execution.engine": "spark"}, spark=spark, folder=str(tmp_path))
    for _ in here.run_script(
        "CREATE TABLE few (k STRING, v BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '9');"
        "CREATE TABLE out1 (k STRING, v BIGINT) WITH ('connector' = 'print');"
        "COMPILE PLAN 'p.json' FOR INSERT INTO out1 SELECT UPPER(k), SUM(v) FROM few GROUP BY UPPER(k)"
    ):
        pass
    want = graph(here.execute("INSERT INTO out1 SELECT UPPER(k), SUM(v) FROM few GROUP BY UPPER(k)"))
    assert '"function": "SUM"' in (tmp_path / "p.json").read_text()
    assert encode_plan(graph(here.execute("EXECUTE PLAN 'p.json'"))) == encode_plan(want)
    for other in (None, SparkSupport("pyspark is not installed", lambda _: None)):
        with pytest.raises(PenstockError, match="compiled for Spark"):
            SqlSession({}, spark=other, folder=str(tmp_path)).execute("EXECUTE PLAN 'p.json'")
    begins = {"execution.state-recovery.path": "/a/savepoint"}
    with pytest.raises(SpecError, match="cannot begin from a savepoint"):
        SqlSession(begins, spark=spark, folder=str(tmp_path)).execute("EXECUTE PLAN 'p.json'")
    file = tmp_path / "p.json"
    file.write_bytes(replacing('"function": "SUM"', '"function": "NO_SUCH"')(json.loads(file.read_bytes())))
    with pytest.raises(SpecError, match="NO_SUCH"):
        here.execute("EXECUTE PLAN 'p.json'")


@pytest.mark.parametrize("file", sorted(STORED.glob("*.json")), ids=lambda f: f.name)
def test_plans_of_former_versions_stay_readable(file: Path) -> None:
    """Never write these anew: a reader of their version must go on giving the job that they hold."""
    stored = decode_plan(file.read_bytes(), file.name)
    tree = json.loads(file.read_bytes())["jobGraph"]
    assert uids(stored) == [o["uid"] for v in tree["vertices"] for o in v["operators"]]
    assert len(finished(graph(SqlSession(CONFIG).execute(f"EXECUTE PLAN '{file}'")), None)["one"]) > 3
