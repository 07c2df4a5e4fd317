"""Whether Spark reads a job's history: decided while planning, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import UnsupportedError
from penstock.jobgraph.graph import JobGraph
from penstock.jobgraph.specs import EnumeratorSpec, SourceSpec, SparkQuerySpec
from penstock.plan.backfill import backfill_graph, is_backfilled
from penstock.plan.engine import SparkSupport, decode_content
from penstock.sql.scripts import plan_script

READY = SparkSupport(None, lambda graph: None)
MISSING = SparkSupport("Spark (pyspark) is not installed here", lambda graph: None)
GROUPED = "SELECT id, COUNT(*) AS n FROM t GROUP BY id"
INSERT = f"CREATE TABLE out (id INT, n BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'blackhole'); INSERT INTO out {GROUPED};"
PRINT = INSERT.replace("blackhole", "print")


@pytest.fixture
def hybrid(tmp_path: Path) -> str:
    (tmp_path / "a.csv").write_text("1\n")
    return (
        "CREATE TABLE t (id INT) WITH ('connector' = 'hybrid', 'history.connector' = 'filesystem', "
        f"'history.path' = '{tmp_path}/a.csv', 'history.format' = 'csv', 'live.connector' = 'nats', "
        "'live.stream' = 'S', 'live.format' = 'json');"
    )


def plan(text: str, engine: str = "auto", spark: SparkSupport | None = READY, **config: str) -> JobGraph:
    given = {"execution.backfill.engine": engine, "parallelism.default": "3", **config}
    return plan_script(text, given, spark=spark).job_graph


def test_a_job_of_history_then_live_is_backfilled_by_itself(hybrid: str) -> None:
    graph = plan(hybrid + INSERT)
    assert is_backfilled(graph)
    assert graph.plan.startswith("== Backfill ==\nspark: history, then live")
    assert "== Engine ==\nstreaming" in graph.plan
    content = decode_content(graph.backfill)
    uids = {node.uid for v in graph.vertices for node in v.operators}
    assert uids == {node.uid for v in content.vertices for node in v.operators}


@pytest.mark.parametrize(
    ("text", "engine", "spark", "reason"),
    [
        (PRINT, "auto", READY, "sink 'print'"),
        (GROUPED, "auto", READY, "sink 'collect'"),
        (INSERT, "auto", MISSING, "a backfill on Spark"),
    ],
)
def test_what_spark_cannot_the_stream_does(
    hybrid: str, text: str, engine: str, spark: SparkSupport, reason: str
) -> None:
    graph = plan(hybrid + text, engine, spark)
    assert not is_backfilled(graph)
    assert graph.plan.startswith("== Backfill ==\nstreaming: Spark cannot read the history")
    assert reason in graph.plan
    with pytest.raises(UnsupportedError, match=reason):
        plan(hybrid + text, "spark", spark)


def test_without_its_rows_any_sink_will_do(hybrid: str) -> None:
    graph = plan(hybrid + PRINT, "spark", **{"execution.backfill.emit": "false"})
    assert is_backfilled(graph)


def test_a_live_part_that_ends_is_streamed_behind_the_backfill(
    hybrid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bounded as a whole, it would be a batch: the backfill that was asked for says otherwise."""
    monkeypatch.delenv("PENSTOCK_ENGINE", raising=False)
    bounded = hybrid.replace("'live.stream'", "'live.scan.bounded.mode' = 'marker', 'live.stream'")
    assert "== Engine ==\nspark" in plan(bounded + INSERT).plan
    graph = plan(bounded + INSERT, "spark")
    assert is_backfilled(graph)
    assert "== Engine ==\nstreaming: behind the backfill" in graph.plan


def test_a_job_without_history_cannot_be_backfilled() -> None:
    text = "CREATE TABLE t (id INT) WITH ('connector' = 'datagen');" + INSERT
    assert "Backfill" not in plan(text).plan
    with pytest.raises(UnsupportedError, match="without history"):
        plan(text, "spark")


def test_a_job_from_a_savepoint_has_its_history_behind_it(hybrid: str) -> None:
    graph = plan(hybrid + INSERT, **{"execution.state-recovery.path": "file:///sp"})
    assert not is_backfilled(graph)


def test_it_may_be_kept_off(hybrid: str) -> None:
    assert not plan(hybrid + INSERT, "none").backfill


def test_what_runs_first_is_one_task_on_spark(hybrid: str) -> None:
    graph = backfill_graph(plan(hybrid + INSERT))
    [vertex] = graph.vertices
    [node] = vertex.operators
    assert isinstance(node.spec, SparkQuerySpec)
    assert node.spec.backfill
    assert (vertex.parallelism, vertex.slots) == (1, 3)
    assert graph.config["execution.checkpointing.interval"] == "0"


def test_stages_have_their_own_parallelism(hybrid: str) -> None:
    graph = plan(hybrid + INSERT, **{"execution.backfill.parallelism": "5"})
    content = decode_content(graph.backfill)
    parallelism = {v.parallelism for v in content.vertices}
    assert parallelism == {1, 5}  # the enumerator is one
    assert {v.max_parallelism for v in content.vertices} == {v.max_parallelism for v in graph.vertices}


def test_sources_stand_alone_in_their_stages(hybrid: str) -> None:
    """A vertex that reads a table and takes rows from others is cut."""
    text = (
        "CREATE TABLE out (id INT) WITH ('connector' = 'blackhole'); INSERT INTO out "
        "SELECT id FROM t UNION ALL SELECT MAX(id) FROM t GROUP BY id;"
    )
    content = decode_content(plan(hybrid + text).backfill)
    for vertex in content.vertices:
        if any(isinstance(node.spec, SourceSpec) for node in vertex.operators):
            sources = [content.vertex(e.source) for e in content.inputs_of(vertex.id)]
            assert all(isinstance(n.spec, EnumeratorSpec) for v in sources for n in v.operators)
