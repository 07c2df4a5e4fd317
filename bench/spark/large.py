"""A batch over many events in bounded memory: seconds and peaks, query by query."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.spark.memory import PeakMemory
from bench.spark.queries import LARGE, QUERIES, ours_counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_large(session: SparkSession, path: Path, events: int) -> None:
    queries = {
        "q1 (currency)": QUERIES["currency"],
        "q2 (selection)": QUERIES["selection"],
        **LARGE,
        "bids per auction": QUERIES["per_auction"],
    }
    print(
        f"{'':42} {'rows out':>11} {'seconds':>8} {'M ev/s':>7} "
        f"{'Java MiB':>9} {'workers':>8} {'driver':>7}  (peaks so far)"
    )
    with PeakMemory() as peak:
        for name, (columns, query) in queries.items():
            began = time.perf_counter()
            rows = ours_counted(session, str(path), columns, query)
            seconds = time.perf_counter() - began
            print(
                f"{name:42} {rows:11,} {seconds:8.1f} {events / seconds / 1e6:7.2f} {peak.java_mib:9.0f} "
                f"{peak.workers_mib:8.0f} {peak.here_mib:7.0f}",
                flush=True,
            )
