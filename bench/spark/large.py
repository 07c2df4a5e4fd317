"""A batch over many events in bounded memory: seconds and peaks, query by query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.spark.memory import PeakMemory
from bench.spark.overhead import timed
from bench.spark.queries import LARGE, QUERIES, ours

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
        f"{'':42} {'seconds':>8} {'M ev/s':>7} {'Java MiB':>9} {'workers':>8} {'driver':>7}  (peaks so far)"
    )
    with PeakMemory() as peak:
        for name, (columns, query) in queries.items():
            seconds = timed(lambda c=columns, q=query: ours(session, str(path), c, q))  # type: ignore[misc]
            print(
                f"{name:42} {seconds:8.1f} {events / seconds / 1e6:7.2f} {peak.java_mib:9.0f} "
                f"{peak.workers_mib:8.0f} {peak.here_mib:7.0f}",
                flush=True,
            )
