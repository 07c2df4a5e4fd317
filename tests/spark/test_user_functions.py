"""Users' functions on executors, and what is said when they fail there."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import FunctionError, PenstockError
from penstock.spark.engine import SparkJob
from penstock.spark.errors import SparkJobError, TaskError, translated
from penstock.sql.session import plan_script

MODULE = """
import pyarrow.compute as pc
from penstock.api import udaf, udf, udtf

@udf(result_type="BIGINT")
def plus(a, b):
    return None if a is None or b is None else a + b

@udf(result_type="DOUBLE", per="batch")
def halved(x):
    return pc.divide(pc.cast(x, "float64"), 2.0)

@udtf(result_types=["STRING", "INT"])
def words(line):
    for w in (line or "").split():
        yield w, len(w)

@udaf(result_type="DOUBLE")
class Mean:
    def create_accumulator(self): return [0.0, 0]
    def accumulate(self, acc, x):
        if x is not None: acc[0] += x; acc[1] += 1
    def merge(self, acc, others):
        for o in others: acc[0] += o[0]; acc[1] += o[1]
    def get_value(self, acc): return acc[0] / acc[1] if acc[1] else None

@udf(result_type="INT")
def fragile(x):
    return 10 // (x - 3)

@udf(result_type="INT")
def needs(x):
    import no_such_library
    return x
"""


@pytest.fixture
def module(tmp_path: Path) -> Iterator[str]:
    """A module of the user's, found by the planner and, through the job's path, by executors."""
    (tmp_path / "spark_udfs.py").write_text(textwrap.dedent(MODULE))
    sys.path.insert(0, str(tmp_path))
    importlib.invalidate_caches()
    yield str(tmp_path)
    sys.path.remove(str(tmp_path))
    sys.modules.pop("spark_udfs", None)


def rows(sql: str, module: str, spark: Any) -> list[tuple[Any, ...]]:
    names = ("plus", "halved", "words", "Mean", "fragile", "needs")
    create = "".join(f"CREATE FUNCTION {n.lower()} AS 'spark_udfs.{n}' LANGUAGE PYTHON;" for n in names)
    settings = {"parallelism.default": "1", "execution.engine": "streaming"}
    graph = plan_script(create + sql, settings, python_path=(module,)).job_graph
    return SparkJob(graph, spark).run().rows


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT plus(a, 10) FROM (VALUES (1), (CAST(NULL AS BIGINT))) AS v(a)", [(11,), (None,)]),
        ("SELECT halved(a) FROM (VALUES (1), (4)) AS v(a)", [(0.5,), (2.0,)]),
        (
            "SELECT w, n FROM (VALUES ('to be'), ('')) AS v(s), LATERAL TABLE(words(s)) AS l(w, n)",
            [("to", 2), ("be", 2)],
        ),
        (
            "SELECT k, mean(x) FROM (VALUES ('a', 1), ('a', 4), ('b', 7)) AS v(k, x) GROUP BY k",
            [("a", 2.5), ("b", 7.0)],
        ),
        ("SELECT a FROM (VALUES (1), (2)) AS v(a) WHERE plus(a, 1) = 3", [(2,)]),
    ],
)
def test_functions_give_their_values(sql: str, expected: list[Any], module: str, spark: Any) -> None:
    assert sorted(rows(sql, module, spark), key=str) == sorted(expected, key=str)


def test_the_users_traceback_with_the_record(module: str, spark: Any) -> None:
    with pytest.raises(FunctionError) as err:
        rows("SELECT fragile(a) FROM (VALUES (1), (3)) AS v(a)", module, spark)
    text = str(err.value)
    assert text.startswith("Traceback")
    assert "return 10 // (x - 3)" in text
    assert "arguments (3)" in text
    assert "java" not in text.lower()
    assert "org.apache" not in text


def test_a_package_that_executors_lack(module: str, spark: Any) -> None:
    with pytest.raises(PenstockError) as err:
        rows("SELECT needs(a) FROM (VALUES (1)) AS v(a)", module, spark)
    assert "no_such_library" in str(err.value)


def test_what_spark_says_becomes_one_line() -> None:
    """Other failures: no Java stack; a missing module is named with what to do."""
    ours = translated(
        RuntimeError(f"…\n{TaskError(FunctionError('f failed', got='record 3'))}\n\tat org.apache")
    )
    assert (type(ours), ours.message, ours.got) == (FunctionError, "f failed", "record 3")
    missing = translated(RuntimeError("x\nModuleNotFoundError: No module named 'penstock'\n\tat org.apache"))
    assert "penstock" in missing.message
    assert "every executor" in str(missing)
    other = translated(RuntimeError("Job aborted due to stage failure\n\tat org.apache.spark.Foo"))
    assert isinstance(other, SparkJobError)
    assert "org.apache" not in str(other)


def test_async_functions_are_awaited(module: str, spark: Any, tmp_path: Path) -> None:
    (tmp_path / "spark_async.py").write_text(
        "import asyncio\nfrom penstock.api import udf\n\n"
        "@udf(result_type='BIGINT')\nasync def later(x):\n    await asyncio.sleep(0)\n    return x + 1\n"
    )
    create = "CREATE FUNCTION later AS 'spark_async.later' LANGUAGE PYTHON;"
    sql = create + "SELECT a, later(a) FROM (VALUES (1), (2)) AS v(a)"
    settings = {"parallelism.default": "1", "execution.engine": "streaming"}
    graph = plan_script(sql, settings, python_path=(module,)).job_graph
    sys.modules.pop("spark_async", None)
    assert sorted(SparkJob(graph, spark).run().rows) == [(1, 2), (2, 3)]
