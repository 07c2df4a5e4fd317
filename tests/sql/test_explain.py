"""SQL → EXPLAIN, held against files in ``golden/``. PENSTOCK_UPDATE_GOLDEN=1 rewrites them."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest

from penstock.connectors.base import Connector
from penstock.connectors.registry import register
from penstock.sql.session import SqlSession

_GOLDEN = Path(__file__).with_name("golden")
_spec = importlib.util.spec_from_file_location(
    "nexmark_queries", Path(__file__).with_name("nexmark_queries.py")
)
assert _spec is not None
assert _spec.loader is not None
nexmark = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(nexmark)


class _Events(Connector):
    """An unbounded source that picks event types and fields itself."""

    name = "events"
    nested_projection = True

    def push_down(self, table, *, columns, equals):  # type: ignore[no-untyped-def]
        return {table.schema.names[c]: v for c, v in equals.items() if table.schema.names[c] == "event_type"}


register(_Events())

_TABLES = """
CREATE TABLE flights (
  origin STRING, dest STRING, delay DOUBLE, scheduled TIMESTAMP(3),
  WATERMARK FOR scheduled AS scheduled - INTERVAL '3' HOUR
) WITH ('connector' = 'datagen');
CREATE TABLE weather (
  origin STRING, hour_utc TIMESTAMP(3), temp DOUBLE,
  WATERMARK FOR hour_utc AS hour_utc - INTERVAL '1' HOUR
) WITH ('connector' = 'datagen');
CREATE TABLE rates (
  currency STRING, rate DOUBLE, valid_from TIMESTAMP(3),
  PRIMARY KEY (currency) NOT ENFORCED, WATERMARK FOR valid_from AS valid_from
) WITH ('connector' = 'datagen');
CREATE TABLE orders (
  id BIGINT, currency STRING, amount DOUBLE, ordered TIMESTAMP(3), WATERMARK FOR ordered AS ordered
) WITH ('connector' = 'datagen');
CREATE TABLE late (origin STRING, dest STRING, scheduled TIMESTAMP(3)) WITH ('connector' = 'print');
CREATE TABLE board (origin STRING, ends TIMESTAMP(3), n BIGINT, temp DOUBLE) WITH ('connector' = 'print');
CREATE TABLE totals (origin STRING, n BIGINT, PRIMARY KEY (origin) NOT ENFORCED) WITH ('connector' = 'print');
CREATE TABLE files (origin STRING, n BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
CREATE VIEW departures AS
  SELECT origin, window_end, window_time, COUNT(*) AS n, AVG(delay) AS mean
  FROM TABLE(HOP(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '15' MINUTE, INTERVAL '1' HOUR))
  GROUP BY origin, window_start, window_end, window_time;
"""

PLANS: dict[str, str] = {
    "main_job": """SET 'table.exec.late-data.table' = 'late';
        EXECUTE STATEMENT SET BEGIN
          INSERT INTO board SELECT d.origin, d.window_end, d.n, w.temp FROM departures d
            LEFT JOIN weather w ON w.origin = d.origin
              AND w.hour_utc BETWEEN d.window_time - INTERVAL '1' HOUR AND d.window_time;
          INSERT INTO files SELECT origin, n FROM departures;
        END;""",
    "tumble_two_phases": "SET 'parallelism.default' = '4'; SELECT origin, SUM(delay) FROM "
    "TABLE(TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1' HOUR)) "
    "GROUP BY origin, window_start, window_end;",
    "updating_into_key": "INSERT INTO totals SELECT origin, COUNT(*) FROM flights GROUP BY origin;",
    "updating_into_other_key": "INSERT INTO totals SELECT dest, COUNT(*) FROM flights GROUP BY origin, dest;",
    "union_of_filters": "SELECT origin FROM (SELECT origin, delay FROM flights WHERE dest = 'BOS' "
    "UNION ALL SELECT origin, delay FROM flights) WHERE delay > 10;",
    "window_top_n": "SELECT origin, window_end, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, "
    "window_end ORDER BY n DESC) AS r FROM (SELECT origin, window_start, window_end, COUNT(*) AS n FROM "
    "TABLE(TUMBLE(TABLE flights, DESCRIPTOR(scheduled), INTERVAL '1' HOUR)) "
    "GROUP BY origin, window_start, window_end)) WHERE r <= 3;",
    "running_sum": "SELECT origin, SUM(delay) OVER (PARTITION BY origin ORDER BY scheduled "
    "RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) FROM flights;",
    "temporal_join": "SELECT o.id, o.amount * r.rate FROM orders o "
    "JOIN rates FOR SYSTEM_TIME AS OF o.ordered AS r ON o.currency = r.currency;",
    "semi_join_with_ttl": "SET 'table.exec.state.ttl' = '1 d'; "
    "SELECT id FROM orders WHERE currency IN (SELECT currency FROM rates WHERE rate > 1);",
    "set_operations": "SELECT origin FROM flights INTERSECT SELECT origin FROM weather;",
    "top_by_limit": "SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin ORDER BY n DESC LIMIT 5;",
    "scalar_subquery": "SET 'table.exec.state.ttl' = '1 d'; "
    "SELECT id FROM orders WHERE amount > (SELECT MAX(rate) FROM rates);",
    "grouping_sets": "SELECT origin, dest, COUNT(*) FROM flights GROUP BY GROUPING SETS ((origin, dest), (origin), ());",
}


def check(name: str, text: str) -> None:
    path = _GOLDEN / f"{name}.txt"
    if os.environ.get("PENSTOCK_UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.exists(), (
        f"no golden file {path.name}: run with PENSTOCK_UPDATE_GOLDEN=1 and read what it wrote"
    )
    assert text == path.read_text()


def planned(session: SqlSession, script: str) -> str:
    plan = None
    for result in session.run_script(script):
        if result.job is not None:
            plan = result.job.job_graph.plan
    assert plan is not None
    return plan


@pytest.mark.parametrize("name", list(PLANS))
def test_plan(name: str) -> None:
    session = SqlSession({"parallelism.default": "2"})
    for _ in session.run_script(_TABLES):
        pass
    check(name, planned(session, PLANS[name]))


def _nexmark(push_down: bool) -> SqlSession:
    session = SqlSession(
        {
            "parallelism.default": "2",
            "execution.runtime-mode": "STREAMING",
            "table.exec.join.unbounded-state": "allow",
            "table.optimizer.source.push-down-enabled": str(push_down).lower(),
        }
    )
    for statement in nexmark.declarations("'connector' = 'events'"):
        session.execute(statement)
    return session


@pytest.mark.parametrize("name", list(nexmark.QUERIES))
def test_nexmark_plan(name: str) -> None:
    check(f"nexmark_{name}", planned(_nexmark(push_down=True), nexmark.QUERIES[name]))


@pytest.mark.parametrize("name", list(nexmark.QUERIES))
def test_nexmark_plan_without_push_down(name: str) -> None:
    """The same operators behind the sources, of which there may be fewer."""
    whole = planned(_nexmark(push_down=False), nexmark.QUERIES[name])
    sections = whole.split("== Optimized Logical Plan ==")[1].split("== Job Graph ==")[0]
    check(f"nexmark_{name}_without_push_down", f"== Optimized Logical Plan =={sections}")
    assert _operators(whole) == _operators(planned(_nexmark(push_down=True), nexmark.QUERIES[name]))


def _operators(plan: str) -> list[str]:
    """The physical operators, but for sources, filters and projections."""
    physical = plan.split("== Physical Plan ==")[1].split("\n\n")[0]
    names = re.findall(r"^#\d+ (.+?)(?: <- .*)?  \[", physical, re.M)
    return [name for name in names if not name.startswith(("Enumerator", "Source", "Calc"))]


def test_explain_statement_is_the_plan_of_the_job() -> None:
    session = SqlSession({"parallelism.default": "2"})
    for _ in session.run_script(_TABLES):
        pass
    query = "SELECT origin FROM flights"
    text = session.execute("EXPLAIN " + query).message
    job = session.execute(query).job
    assert job is not None
    assert text == job.job_graph.plan
    assert text.startswith("== Logical Plan ==")
