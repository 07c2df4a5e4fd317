"""Penstock's Spark engine beside PySpark written by hand, in one warm session."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.spark.queries import QUERIES, by_hand, ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Pairs:
    """Medians of seconds, and of the pairs' ratios."""

    name: str
    penstock_s: float
    by_hand_s: float
    ratio: float


def compare(session: SparkSession, path: Path, rounds: int) -> list[Pairs]:
    """Each query in pairs of runs, the order turned from pair to pair; the first pair warms both
    up. From the SQL text, or from the first DataFrame, to the last row written."""
    hand = by_hand(session, str(path))
    found = []
    for name, (columns, query) in QUERIES.items():

        def theirs(name: str = name) -> None:
            hand[name]().write.format("noop").mode("overwrite").save()

        def mine(columns: str = columns, query: str = query) -> None:
            ours(session, str(path), columns, query)

        pairs = []
        for number in range(rounds + 1):
            if number % 2:
                a, b = timed(mine), timed(theirs)
            else:
                b, a = timed(theirs), timed(mine)
            if number:
                pairs.append((a, b))
        found.append(
            Pairs(
                name,
                statistics.median(a for a, _ in pairs),
                statistics.median(b for _, b in pairs),
                statistics.median(a / b for a, b in pairs),
            )
        )
        row = found[-1]
        print(f"{name:15} {row.penstock_s:10.2f} {row.by_hand_s:10.2f} {row.ratio:7.3f}", flush=True)
    return found


def timed(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
