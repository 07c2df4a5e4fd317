"""Where Flink's recorded answers lie: in the folder that PENSTOCK_ACCEPTANCE names, else the part of them in
``tests/acceptance``."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(os.environ.get("PENSTOCK_ACCEPTANCE") or Path(__file__).with_name("acceptance"))
EXPRESSIONS = FOLDER / "flink_functions" / "expressions.csv"
AGGREGATES = FOLDER / "flink_functions" / "aggregates.csv"
NEXMARK_EVENTS = FOLDER / "nexmark_flink" / "events.parquet"


def nexmark_rows(query: str) -> Path:
    """The rows of a query, gzipped CSV with a header; the part has some of the queries only."""
    return FOLDER / "nexmark_flink" / "results" / f"{query}.csv.gz"
