"""Spark's own plan in EXPLAIN."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.api import Sink, StreamExecutionEnvironment
from penstock.plan.engine import ENGINE_VARIABLE, SparkSupport
from penstock.spark import explain
from penstock.spark.explain import Answer, Question, serve, spark_plan
from penstock.spark.plan_text import own_sections
from penstock.spark.support import spark_support
from penstock.sql.session import SqlSession

pytestmark = pytest.mark.usefixtures("any_engine")
COUNT = "SELECT customer, COUNT(*) FROM orders WHERE id > 5 GROUP BY customer"


@pytest.fixture
def any_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENGINE_VARIABLE, raising=False)


@pytest.fixture
def orders(tmp_path: Path) -> str:
    pq.write_table(
        pa.table({"id": range(20), "customer": [i % 3 for i in range(20)]}), tmp_path / "0.parquet"
    )
    return (
        "CREATE TABLE orders (id BIGINT, customer BIGINT) "
        f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'parquet')"
    )


def session(orders: str, support: SparkSupport | None = None, **config: str) -> SqlSession:
    made = SqlSession({"execution.engine.auto.small-input": "0", **config}, spark=support or spark_support())
    made.execute(orders)
    return made


def answered(spark: Any, statement: str, orders: str, **config: str) -> Answer:
    """What the process that asks Spark answers, asked in this one."""
    questions: list[Question] = []

    def note(graph: Any, cost: bool) -> str:
        [query] = [o.spec for v in graph.vertices for o in v.operators if hasattr(o.spec, "rows")]
        questions.append(Question(graph=query.graph, config=dict(graph.config), cost=cost))
        return ""

    support = SparkSupport(None, lambda graph: None, note)
    session(orders, support, **config).execute(statement)
    out = io.BytesIO()
    serve(io.BytesIO(msgspec.json.encode(questions[0]) + b"\n"), out)
    return msgspec.json.decode(out.getvalue(), type=Answer)


def test_both_of_sparks_plans(spark: Any, orders: str) -> None:
    answer = answered(spark, f"EXPLAIN {COUNT}", orders)
    assert not answer.error
    optimised, physical = answer.text.split("== Spark Physical Plan ==")
    assert optimised.startswith("== Spark Optimized Logical Plan ==\nAggregate [customer")
    assert "Statistics" not in optimised
    assert "HashAggregate" in physical
    assert "PushedFilters: [IsNotNull(id), GreaterThan(id,5)]" in physical
    assert "Parsed Logical Plan" not in answer.text


def test_with_costs(spark: Any, orders: str) -> None:
    assert "Statistics(sizeInBytes=" in answered(spark, f"EXPLAIN ESTIMATED_COST {COUNT}", orders).text


def test_a_spark_that_is_not_there_is_a_line(spark: Any, orders: str) -> None:
    answer = answered(spark, f"EXPLAIN {COUNT}", orders, **{"spark.remote": "sc://127.0.0.1:9"})
    assert "no Spark answers at sc://127.0.0.1:9" in answer.error
    assert not answer.text


def test_explain_and_the_api_show_it(orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the process, from SQL and from a program."""
    text = session(orders).execute(f"EXPLAIN {COUNT}").message
    assert text.startswith("== Engine ==\nspark: all sources are bounded")
    assert text.index("== Job Graph ==") < text.index("== Spark Optimized Logical Plan ==")
    env = StreamExecutionEnvironment()
    env.execute_sql(orders)
    env.sql_query("SELECT id FROM orders").sink_to(Sink.connector("print"))
    assert "== Spark Physical Plan ==\n*(1)" in env.explain()
    explain.stop()
    # One that ends at once instead of answering.
    monkeypatch.setattr(explain.sys, "executable", "/bin/false")
    text = session(orders).execute(f"EXPLAIN {COUNT}").message
    assert "not known here: the process that asks Spark ended" in text
    explain.stop()


def test_jobs_that_spark_does_not_run_ask_nothing(orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "_asked", lambda question: pytest.fail("asked"))
    made = session(orders, **{"execution.engine": "streaming"})
    assert "Spark" not in made.execute(f"EXPLAIN {COUNT}").message.split("== Logical Plan ==")[1]
    made = session(orders, **{"table.explain.spark-plan": "false"})
    assert "== Spark" not in made.execute(f"EXPLAIN {COUNT}").message
    graph = session(orders).execute(COUNT).job.job_graph  # type: ignore[union-attr]
    assert spark_plan(msgspec.structs.replace(graph, bounded=False), False) == ""


def test_only_the_later_sections() -> None:
    text = "== Parsed Logical Plan ==\na\n== Optimized Logical Plan ==\nb\n\n== Physical Plan ==\nc\n\n"
    assert own_sections(text) == "== Spark Optimized Logical Plan ==\nb\n\n== Spark Physical Plan ==\nc\n"
