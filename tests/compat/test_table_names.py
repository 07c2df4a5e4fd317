"""``pyflink.table`` inside a program of Penstock's; PyFlink's own examples where a setting names their folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock.table
from penstock.compat import pyflink
from penstock.errors import UnsupportedError

#: The folder ``examples/table`` of PyFlink 2.3.
EXAMPLES = os.environ.get("PENSTOCK_PYFLINK_TABLE_EXAMPLES", "")


@pytest.fixture
def tree() -> Iterator[None]:
    pyflink.install()
    yield
    pyflink.uninstall()


def test_the_names_are_penstocks_own(tree: None) -> None:
    from pyflink.table import DataTypes, TableEnvironment
    from pyflink.table.expressions import col
    from pyflink.table.udf import udf
    from pyflink.table.window import Tumble

    assert (DataTypes, TableEnvironment) == (penstock.table.DataTypes, penstock.table.TableEnvironment)
    assert str(udf(lambda a: a, result_type=DataTypes.INT(), name="f")(col("a")))
    assert Tumble.over


def test_what_is_not_there_is_refused_by_name(tree: None) -> None:
    from pyflink.table import ModelDescriptor
    from pyflink.table.catalog import HiveCatalog

    with pytest.raises(UnsupportedError, match="HiveCatalog"):
        HiveCatalog("hive")
    with pytest.raises(UnsupportedError, match="ModelDescriptor"):
        ModelDescriptor()


@pytest.mark.cluster
@pytest.mark.skipif(not EXAMPLES, reason="PENSTOCK_PYFLINK_TABLE_EXAMPLES names no folder")
@pytest.mark.parametrize(
    "name",
    [
        "word_count.py",
        "process_json_data.py",
        "process_json_data_with_udf.py",
        "multi_sink.py",
        "mixing_use_of_datastream_and_table.py",
    ],
)
def test_an_example_runs_unchanged(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", "run", str(Path(EXAMPLES) / name)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout
