"""The daemon from which Spark forks its Python workers, with what workers import imported once.

Spark runs ``python -m penstock.spark.python_daemon pyspark.worker`` (``spark.python.daemon.module``). PySpark's
own daemon imports nothing before it forks, since pandas and pyarrow might start threads; so each worker imports
for most of a second of CPU time. These imports start no thread once NumPy's and Arrow's settings forbid it
(``tests/spark/test_python_daemon.py``). Workers find the environment as Spark has set it.
"""

from __future__ import annotations

import gc
import importlib
import os

from penstock.runtime.forking import STARTED_WITH, WITHOUT_THREADS

#: What the workers of most jobs import. A user's module is never among them.
PRELOAD = (
    "numpy",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.pandas_compat",
    "pyspark.worker",
    "penstock.spark.partition_program",
    "penstock.spark.compaction",
)


def preload() -> None:
    """Imports what workers need, and does nothing else."""
    os.environ.update(WITHOUT_THREADS)
    try:
        for name in PRELOAD:
            importlib.import_module(name)
    finally:
        os.environ.clear()
        os.environ.update(STARTED_WITH)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    preload()
    from pyspark.daemon import manager

    manager()
