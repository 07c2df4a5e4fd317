"""Which engine a job runs on, and what it becomes for Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SpecError, UnsupportedError
from penstock.jobgraph.graph import JobGraph
from penstock.jobgraph.specs import SinkSpec, SourceSpec, SparkQuerySpec
from penstock.plan.engine import (
    ENGINE_VARIABLE,
    SPARK_CHECKPOINTS,
    SparkSupport,
    check_stream_store,
    decode_content,
    sinks_of,
)
from penstock.spark.support import spark_support
from penstock.sql.session import SqlSession

TABLES = """
CREATE TABLE ended (k BIGINT, v BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '10');
CREATE TABLE endless (k BIGINT, v BIGINT) WITH ('connector' = 'datagen');
CREATE TABLE files (k BIGINT, n BIGINT) WITH ('connector' = 'filesystem', 'path' = '/tmp/x', 'format' = 'csv');
CREATE TABLE shown (k BIGINT, n BIGINT) WITH ('connector' = 'print');
"""
COUNT = "SELECT k, COUNT(*) FROM {} GROUP BY k"
HERE = SparkSupport(None, lambda graph: None)
NOT_HERE = SparkSupport("Spark is not installed here", lambda graph: None)


@pytest.fixture(autouse=True)
def no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)


def planned(query: str, config: dict[str, str] | None = None, spark: SparkSupport | None = HERE) -> JobGraph:
    small = {"execution.engine.auto.small-input": "0"}
    session = SqlSession({"parallelism.default": "2", **small, **(config or {})}, spark=spark)
    for statement in TABLES.split(";")[:-1]:
        session.execute(statement)
    job = session.execute(query).job
    assert job is not None
    return job.job_graph


def specs(graph: JobGraph) -> list[Any]:
    return [node.spec for vertex in graph.vertices for node in vertex.operators]


def refuse(graph: JobGraph) -> None:
    raise UnsupportedError("what Spark has not")


@pytest.mark.parametrize(
    ("query", "config", "spark", "first_line"),
    [
        (COUNT.format("ended"), {}, HERE, "spark: all sources are bounded (execution.runtime-mode = AUTOMATIC)"),
        (COUNT.format("ended"), {"execution.runtime-mode": "BATCH"}, HERE, "spark: all sources are bounded"),
        (COUNT.format("ended"), {"execution.runtime-mode": "STREAMING"}, HERE, "streaming: execution.runtime-mode"),
        (COUNT.format("ended"), {"execution.engine": "streaming"}, HERE, "streaming: execution.engine"),
        (COUNT.format("endless"), {}, HERE, "streaming: a source is unbounded"),
        (COUNT.format("ended"), {"execution.state-recovery.path": "savepoints/s"}, HERE, "streaming: it begins from a savepoint"),
        (COUNT.format("ended"), {"execution.state-recovery.path": "savepoints/s", "execution.runtime-mode": "BATCH"}, HERE, "streaming: it begins from a savepoint"),
        (COUNT.format("ended"), {"execution.engine.auto.small-input": "1 kb"}, HERE, "streaming: a query of about"),
        (COUNT.format("ended"), {"execution.engine.auto.small-input": "1 kb", "execution.engine": "spark"}, HERE, "spark: execution.engine"),
        (COUNT.format("ended"), {"execution.engine.auto.small-input": "2 b"}, HERE, "spark: all sources"),
        ("SELECT 1", {}, HERE, "streaming: it reads no table"),
        ("SELECT 1", {"execution.engine": "spark"}, HERE, "spark: execution.engine = spark"),
        (COUNT.format("ended"), {}, NOT_HERE, "streaming: all sources are bounded, but Spark is not installed here"),
        (COUNT.format("ended"), {}, SparkSupport(None, refuse), "streaming: all sources are bounded, but Spark cannot"),
    ],
)  # fmt: skip
def test_choice(query: str, config: dict[str, str], spark: SparkSupport, first_line: str) -> None:
    graph = planned(query, config, spark)
    head, line = graph.plan.splitlines()[:2]
    assert head == "== Engine =="
    assert line.startswith(first_line)
    assert any(isinstance(s, SparkQuerySpec) for s in specs(graph)) == first_line.startswith("spark")


def test_a_query_of_small_files_is_not_for_spark_and_an_insert_is(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n")
    (tmp_path / "b.csv").write_text("3,4\n5,6\n")
    session = SqlSession({"execution.engine.auto.small-input": "12 b"}, spark=HERE)
    options = f"'connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'csv'"
    session.execute(f"CREATE TABLE small (k BIGINT, n BIGINT) WITH ({options})")
    session.execute("CREATE TABLE shown (k BIGINT, n BIGINT) WITH ('connector' = 'print')")
    session.execute(f"CREATE TABLE other (k BIGINT, n BIGINT) WITH ({options})")

    def engine(statement: str) -> str:
        job = session.execute(statement).job
        assert job is not None
        return job.job_graph.plan.splitlines()[1]

    assert engine(COUNT.format("small")).startswith("streaming: a query of about 12 bytes")
    assert engine("SELECT a.k FROM small AS a JOIN other AS b ON a.k = b.n").startswith("spark: all sources")
    assert engine("INSERT INTO shown SELECT * FROM small").startswith("spark: all sources")
    # Its rows come at the end, so that none is taken back.
    outer = "SELECT a.k FROM small AS a LEFT JOIN (VALUES (1)) AS v(k) ON a.k = v.k"
    assert engine(outer).startswith("streaming: a query of about 12 bytes")
    (tmp_path / "c.csv").write_text("7,8\n")
    assert engine(COUNT.format("small")).startswith("spark: all sources")


@pytest.mark.parametrize("lenient", ["false", "true"])
def test_a_savepoint_is_the_streaming_engines(lenient: str) -> None:
    config = {"execution.engine": "spark", "execution.state-recovery.path": "savepoints/s"}
    with pytest.raises(SpecError, match="the streaming engine's state") as refused:
        planned(COUNT.format("ended"), {**config, "execution.state-recovery.ignore-unclaimed-state": lenient})
    assert "savepoints/s" in (refused.value.got or "")


def test_the_environment_names_the_engine_of_jobs_that_name_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE_VARIABLE, "streaming")
    assert "streaming" in planned(COUNT.format("ended")).plan.splitlines()[1]
    assert (
        planned(COUNT.format("ended"), {"execution.engine": "auto"}).plan.splitlines()[1].startswith("spark")
    )


@pytest.mark.parametrize(
    ("spark", "words"), [(NOT_HERE, "not installed"), (SparkSupport(None, refuse), "what Spark has not")]
)
def test_asked_for_and_not_to_be_had(spark: SparkSupport, words: str) -> None:
    with pytest.raises(UnsupportedError, match=words):
        planned(COUNT.format("ended"), {"execution.engine": "spark"}, spark)


STREAM = "INSERT INTO files SELECT k, v FROM {}"
SPARK = {"execution.engine": "spark"}


@pytest.mark.parametrize(
    ("table", "config", "store", "named"),
    [
        ("endless", SPARK, "s3://bucket/cluster", "s3://bucket/cluster"),
        ("endless", {**SPARK, SPARK_CHECKPOINTS: "s3a://bucket/x"}, "file:///data", "s3a://bucket/x"),
        ("endless", {**SPARK, SPARK_CHECKPOINTS: "/mnt/x"}, "s3://bucket/cluster", None),
        ("endless", {**SPARK, SPARK_CHECKPOINTS: "file:///mnt/x"}, "s3://bucket/cluster", None),
        ("endless", SPARK, "file:///data", None),
        ("endless", {"execution.engine": "streaming"}, "s3://bucket/cluster", None),
        ("ended", SPARK, "s3://bucket/cluster", None),
    ],
)
def test_checkpoints_of_a_stream_on_spark_lie_in_no_bucket(
    table: str, config: dict[str, str], store: str, named: str | None
) -> None:
    """Said when the job is submitted to a cluster whose store is one, before it has a slot."""
    graph = planned(STREAM.format(table), config)
    if named is None:
        check_stream_store(graph, store)
        return
    with pytest.raises(SpecError, match="cannot keep its checkpoints in a bucket") as refused:
        check_stream_store(graph, store)
    assert refused.value.got == named
    for words in ("mount the bucket", f"'{SPARK_CHECKPOINTS}' to its path", "execution.engine = streaming"):
        assert words in (refused.value.remedy or "")


def test_a_bucket_that_the_job_names_for_them_is_refused_at_planning() -> None:
    support = SparkSupport(None, spark_support().check)
    with pytest.raises(SpecError, match="in a bucket"):
        planned(STREAM.format("endless"), {**SPARK, SPARK_CHECKPOINTS: "s3://bucket/x"}, support)
    assert planned(STREAM.format("endless"), {**SPARK, SPARK_CHECKPOINTS: "/mnt/x"}, support)


def test_without_another_engine_nothing_is_said() -> None:
    graph = planned(COUNT.format("ended"), spark=None)
    assert graph.plan.startswith("== Logical Plan ==")
    assert any(isinstance(s, SourceSpec) for s in specs(graph))


def test_files_are_written_by_spark_and_the_rest_by_slots() -> None:
    graph = planned(
        "EXECUTE STATEMENT SET BEGIN "
        f"INSERT INTO files {COUNT.format('ended')}; INSERT INTO shown {COUNT.format('ended')}; END"
    )
    native, through = graph.vertices
    assert not graph.edges
    assert [type(o.spec) for o in native.operators] == [SparkQuerySpec]
    assert [type(o.spec) for o in through.operators] == [SparkQuerySpec, SinkSpec]
    content = decode_content(native.operators[0].spec.graph)
    names = [sinks_of(content)[i].spec.connector for v in graph.vertices for i in v.operators[0].spec.sinks]
    assert names == ["filesystem", "print"]
    assert native.operators[0].spec.rows is None
    assert through.operators[0].spec.rows == through.operators[1].spec.schema
    # One phase, whatever the parallelism: Spark cuts the work as it likes.
    assert {v.parallelism for v in content.vertices} == {1}
    assert graph.config["execution.checkpointing.interval"] == "0"


@pytest.mark.parametrize(
    ("config", "slots"),
    [
        ({"parallelism.default": "1"}, [1, 1]),
        ({"parallelism.default": "3"}, [3, 1]),
        ({"parallelism.default": "3", "spark.master": "spark://far:7077"}, [1, 1]),
        ({"parallelism.default": "3", "spark.remote": "sc://far:15002"}, [1, 1]),
    ],
)
def test_the_slots_that_a_spark_of_our_own_works_in(config: dict[str, str], slots: list[int]) -> None:
    graph = planned(
        "EXECUTE STATEMENT SET BEGIN "
        f"INSERT INTO files {COUNT.format('ended')}; INSERT INTO shown {COUNT.format('ended')}; END",
        config,
    )
    assert [vertex.slots for vertex in graph.vertices] == slots
    assert [vertex.parallelism for vertex in graph.vertices] == [1, 1]


def test_this_installation() -> None:
    pytest.importorskip("pyspark")
    assert spark_support().missing is None
