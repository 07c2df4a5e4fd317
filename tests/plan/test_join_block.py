"""SQL with joins → the optimised plan: what filters what, in which order."""

from __future__ import annotations

import re

import pytest

from penstock.sql.session import SqlSession

SETTINGS = {"parallelism.default": "2", "execution.runtime-mode": "STREAMING"}
TABLES = """
CREATE TABLE a (k INT, x INT, s STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'datagen');
CREATE TABLE b (k INT, y INT, s STRING, at TIMESTAMP(3), WATERMARK FOR at AS at) WITH ('connector' = 'datagen');
CREATE TABLE c (k INT, x INT, y INT) WITH ('connector' = 'datagen');
CREATE VIEW twice AS SELECT a.k AS k, a.x, b.y FROM a, b;
"""


def plan(query: str, **settings: str) -> str:
    allow = {"table.exec.join.unbounded-state": "allow"}
    session = SqlSession({**SETTINGS, **(allow if not settings else {}), **settings})
    for _ in session.run_script(TABLES):
        pass
    job = session.execute(query).job
    assert job is not None
    return job.job_graph.plan


def optimized(query: str) -> str:
    """Joins, filters and scans of the optimised plan, indented by their depth among themselves."""
    text = plan(query).split("== Optimized Logical Plan ==\n")[1].split("\n\n")[0]
    lines = [re.sub(r"Scan\(table=(\w+).*", r"\1", line) for line in text.splitlines()]
    return "\n".join(line.strip() for line in lines if not re.match(r" *(#\d )?(Project|Sink)", line))


@pytest.mark.parametrize(
    ("query", "shape"),
    [
        pytest.param(
            "SELECT a.x FROM a, b WHERE (a.k = b.k AND a.x = 1 AND b.y = 2) OR (a.k = b.k AND a.x = 3 AND b.y = 4)",
            "Join(inner, left.k = right.k, (((x = 1) AND (y = 2)) OR ((x = 3) AND (y = 4))))\n"
            "Filter(((x = 1) OR (x = 3)))\na\nFilter(((y = 2) OR (y = 4)))\nb",
            id="the equality that branches have in common is a key, and each side is filtered",
        ),
        pytest.param(
            "SELECT a.x FROM a JOIN b ON (a.k = b.k AND a.x > b.y) OR (a.k = b.k AND a.x < 5)",
            "Join(inner, left.k = right.k, ((x > y) OR (x < 5)))\na\nb",
            id="so is one of ON",
        ),
        pytest.param(
            "SELECT a.x FROM a, b WHERE a.k = b.k AND a.k = 5",
            "Join(inner, left.k = right.k)\nFilter((k = 5))\na\nFilter((k = 5))\nb",
            id="a constant goes through an equality",
        ),
        pytest.param(
            "SELECT a.x FROM a LEFT JOIN b ON a.k = b.k WHERE a.k = 5",
            "Join(left, left.k = right.k)\nFilter((k = 5))\na\nFilter((k = 5))\nb",
            id="from the left to the right of a left join",
        ),
        pytest.param(
            "SELECT a.x FROM a LEFT JOIN b ON a.k = b.k AND b.k = 5",
            "Join(left, left.k = right.k)\na\nFilter((k = 5))\nb",
            id="not from the right to the left of one: its rows stay",
        ),
        pytest.param(
            "SELECT a.x FROM a FULL JOIN b ON a.k = b.k AND b.k = 5",
            "Join(full, left.k = right.k, (k = 5))\na\nb",
            id="nothing goes through a full join",
        ),
        pytest.param(
            "SELECT a.x FROM a WHERE a.k IN (SELECT k FROM b WHERE k > 5)",
            "Join(semi, left.k = right.k)\nFilter((k > 5))\na\nFilter((k > 5))\nb",
            id="both ways through a semi join",
        ),
        pytest.param(
            "SELECT a.x FROM a WHERE a.k > 5 AND NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.k < 9)",
            "Join(anti, left.k = right.k)\nFilter((k > 5))\na\nFilter(((k < 9) AND (k > 5)))\nb",
            id="only to the right through an anti join",
        ),
        pytest.param(
            "SELECT a.x FROM a JOIN (SELECT k AS kk, y FROM b WHERE k IN (1, 2)) b ON a.k = b.kk",
            "Join(inner, left.k = right.kk)\nFilter(IN(k, 1, 2))\na\nFilter(IN(k, 1, 2))\nb",
            id="from within a subquery",
        ),
        pytest.param(
            "SELECT a.x FROM a JOIN (SELECT k, COUNT(*) AS n FROM b WHERE k < 3 GROUP BY k) b ON a.k = b.k",
            "Join(inner, left.k = right.k)\nFilter((k < 3))\na\nAggregate(keys=[k])\nFilter((k < 3))\nb",
            id="through the keys of an aggregate",
        ),
        pytest.param(
            "SELECT c.k FROM a, b, c WHERE a.x = c.x AND b.y = c.y",
            "Join(inner, left.y = right.y)\nJoin(inner, left.x = right.x)\na\nc\nb",
            id="an order without a cross product",
        ),
        pytest.param(
            "SELECT c.k FROM twice, c WHERE twice.x = c.x AND twice.y = c.y",
            "Join(inner, left.y = right.y)\nJoin(inner, left.x = right.x)\na\nc\nb",
            id="through a view",
        ),
        pytest.param(
            "SELECT c.k FROM a, b, c WHERE a.k = c.k AND b.k = c.k",
            "Join(inner, left.k = right.k AND left.k0 = right.k)\nJoin(inner, left.k = right.k)\na\nb\nc",
            id="FROM's order, by an equality that follows",
        ),
        pytest.param(
            "SELECT a.k FROM a, b, c WHERE a.k = b.k AND b.y = c.y",
            "Join(inner, left.y = right.y)\nJoin(inner, left.k = right.k)\na\nb\nc",
            id="FROM's order where it crosses nothing",
        ),
        pytest.param(
            "SELECT a.k FROM a JOIN b ON b.at BETWEEN a.at AND a.at + INTERVAL '1' MINUTE JOIN c ON a.k = c.k AND b.k = c.k",
            "Join(inner, left.k = right.k AND left.k0 = right.k)\n"
            "IntervalJoin(inner, right.at BETWEEN left.at AND left.at + 1 min)\na\nb\nc",
            id="bounds of time connect, too: the interval join stays one",
        ),
        pytest.param(
            "SELECT a.k FROM a, b LEFT JOIN c ON c.y = b.y WHERE a.k = 1",
            "Join(left, left.y = right.y)\nJoin(inner)\nFilter((k = 1))\na\nb\nc",
            id="an outer join is a barrier",
        ),
    ],
)  # fmt: skip
def test_shape(query: str, shape: str) -> None:
    assert optimized(query) == shape


def test_a_cross_product_that_remains_is_warned_of() -> None:
    warning = "warning: cross product"
    assert warning in plan("SELECT a.x FROM a, b WHERE a.x > 1")
    assert warning in plan("SELECT a.x FROM a LEFT JOIN b ON a.x > 1")
    assert warning not in plan("SELECT a.x FROM a, b WHERE a.k = b.k")
    assert warning not in plan("SELECT a.x FROM a, b WHERE a.x > b.y"), "each with each, but by a condition"
    assert warning not in plan("SELECT a.x, (SELECT MAX(y) FROM b) FROM a"), "one row"


def test_rows_of_a_random_condition_are_not_moved() -> None:
    text = optimized("SELECT a.x FROM a, b, c WHERE a.x = c.x AND b.y = c.y AND RAND() < 0.5")
    assert text.startswith("Filter((RAND() < ")
