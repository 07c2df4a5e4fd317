"""TPC-H's and TPC-DS's tables as Parquet files, by DuckDB's generators.

The generators are extensions of DuckDB, and those are not on PyPI; DuckDB 0.8.1's wheel has them
built in. It gets an environment of its own (``FOLDER/generator``), and DuckDB as it is today
says what the answers are. Python 3.8 to 3.11.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SUITES = {"tpch": "dbgen", "tpcds": "dsdgen"}
GENERATOR = "duckdb==0.8.1"

_GENERATE = """
import os, sys, duckdb
suite, call, scale, folder = sys.argv[1:]
db = duckdb.connect()
db.execute("SET enable_progress_bar = false")
db.execute(f"LOAD {suite}")
db.execute(f"CALL {call}(sf={float(scale)})")
for (table,) in db.execute("SHOW TABLES").fetchall():
    os.makedirs(f"{folder}/{table}")
    db.execute(f"COPY {table} TO '{folder}/{table}/rows.parquet' (FORMAT PARQUET)")
"""


def generate(suite: str, scale: float, folder: Path) -> Path:
    """The folder of a suite's tables, a folder with Parquet files each; made once."""
    made = folder / f"{suite}-{scale:g}"
    if made.exists():
        return made
    python = folder / "generator" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "generator"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", GENERATOR], check=True)
    unfinished = folder / f"{suite}-{scale:g}.unfinished"
    subprocess.run([python, "-c", _GENERATE, suite, SUITES[suite], str(scale), unfinished], check=True)
    unfinished.rename(made)
    return made
