"""Workers of Python come out of a daemon that has imported what they need, and has started no thread."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from penstock.runtime.forking import WITHOUT_THREADS
from penstock.spark.python_daemon import PRELOAD

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def _found(batches: Iterator[Any]) -> Iterator[Any]:
    import sys

    import pyarrow as pa

    loaded = sorted(sys.modules)
    daemon = os.getppid()
    with open(f"/proc/{daemon}/cmdline") as file:
        argv = file.read().split("\0")
    total = sum(batch.num_rows for batch in batches)
    import numpy

    found = {
        "loaded": loaded,
        "argv": argv,
        "threads": len(os.listdir(f"/proc/{daemon}/task")),
        "environment": dict(os.environ),
        "rows": total,
        "product": float((numpy.ones((200, 200)) @ numpy.ones((200, 200))).sum()),
        "sorted": pa.array([3, 1, 2]).sort().to_pylist(),
    }
    yield pa.RecordBatch.from_pydict({"found": [json.dumps(found)]})


def test_a_worker_finds_its_modules_and_no_settings_of_the_daemon(spark: SparkSession) -> None:
    [row] = spark.range(0, 100, 1, 1).mapInArrow(_found, "found string").collect()
    found = json.loads(row.found)
    assert "penstock.spark.python_daemon" in found["argv"]
    assert set(PRELOAD) <= set(found["loaded"])
    assert found["threads"] == 1
    assert not {
        name for name, value in WITHOUT_THREADS.items() if found["environment"].get(name) == value
    } - {
        "OMP_NUM_THREADS"  # Spark sets it
    }
    assert (found["rows"], found["product"], found["sorted"]) == (100, 8e6, [1, 2, 3])
