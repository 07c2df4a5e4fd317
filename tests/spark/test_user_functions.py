"""Users' functions on executors, and what is said when they fail there. Their values: tests/golden."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import FunctionError, PenstockError, SparkJobError
from penstock.spark.engine import SparkJob
from penstock.spark.errors import TaskError, translated
from penstock.sql.scripts import plan_script
from penstock.types import Batch

SHOWN = """
import json, sys
from penstock.errors import error_from_dict
error = error_from_dict(json.loads(sys.argv[1]))
assert "penstock.spark.errors" not in sys.modules
print(error.domain, error.retryable, error)
"""
MODULE = """
from penstock.api import udf

@udf(result_type="INT")
def fragile(x):
    return 10 // (x - 3)

@udf(result_type="BIGINT")
def uneven(x):
    return x / 2

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
    names = ("fragile", "uneven", "needs")
    create = "".join(f"CREATE FUNCTION {n.lower()} AS 'spark_udfs.{n}' LANGUAGE PYTHON;" for n in names)
    settings = {"parallelism.default": "1", "execution.engine": "streaming"}
    graph = plan_script(create + sql, settings, python_path=(module,)).job_graph
    return SparkJob(graph, spark).run().rows


def test_no_result_is_cut_to_its_type(module: str, spark: Any) -> None:
    assert rows("SELECT uneven(a) FROM (VALUES (2)) AS v(a)", module, spark) == [(1,)]
    with pytest.raises(FunctionError, match="no BIGINT") as err:
        rows("SELECT uneven(a) FROM (VALUES (2), (3)) AS v(a)", module, spark)
    assert err.value.got == "1.5 (float) for arguments (3)"


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
    # As a slot has it from the driver, and the dispatcher from the slot: neither knows Spark.
    shown = subprocess.run(
        [sys.executable, "-c", SHOWN, json.dumps(other.to_dict())], capture_output=True, text=True, check=True
    ).stdout
    assert shown.startswith("external False [PS-SPARK-JOB] the Spark job failed\n")


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


def test_table_aggregates_and_pandas_over_rows_give_the_same(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.table import EnvironmentSettings, Row, TableEnvironment, running
    from penstock.table.expressions import col
    from penstock.table.udf import TableAggregateFunction, udaf, udf, udtaf

    class Top(TableAggregateFunction):
        def create_accumulator(self) -> Any:
            return []

        def accumulate(self, accumulator: Any, *args: Any) -> None:
            accumulator.append(args[0].n)

        def emit_value(self, accumulator: Any) -> Any:
            for place, value in enumerate(sorted(accumulator, reverse=True)[:2]):
                yield Row(place + 1, value)

    class OnSpark:
        def __init__(self, graph: Any, config: Any) -> None:
            self.rows = SparkJob(graph, spark).run().rows

        def batches(self, schema: Any) -> Any:
            yield Batch.of(schema, self.rows)

        def get_job_id(self) -> str:
            return "0" * 32

        def get_job_execution_result(self) -> None:
            return None

        def get_job_status(self) -> str:
            return "FINISHED"

    monkeypatch.setattr(running, "submit", OnSpark)
    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    table = env.from_elements([("a", 3), ("b", 5), ("a", 9), ("a", 4)], ["g", "n"])
    top = udtaf(Top(), result_type="ROW<place INT, v BIGINT>")
    made = table.group_by(col("g")).flat_aggregate(top).select(col("g"), col("place"), col("v"))
    assert sorted(made.to_pandas().values.tolist()) == [["a", 1, 9], ["a", 2, 4], ["b", 1, 5]]
    mapped = table.map(udf(lambda f: f[["n"]] * 2, result_type="ROW<n BIGINT>", func_type="pandas"))
    mean = udaf(lambda f: (f.n.mean(), f.n.max()), result_type="ROW<m DOUBLE, x BIGINT>", func_type="pandas")
    made = mapped.aggregate(mean).select(col("m"), col("x"))
    assert made.to_pandas().values.tolist() == [[10.5, 18]]
    big = 2**53 + 1  # beside a NULL it would become a double, and so another number
    table = env.from_elements([(big,), (None,), (-big,)], "ROW<n BIGINT>")
    same = udf(lambda n: n, result_type="BIGINT", func_type="pandas")
    most = udaf(lambda n: n.max(), result_type="BIGINT", func_type="pandas")
    assert {x["n"] for x in table.select(same(col("n")).alias("n")).to_arrow().to_pylist()} == {
        big,
        None,
        -big,
    }
    assert table.select(most(col("n")).alias("n")).to_pandas().values.tolist() == [[big]]
