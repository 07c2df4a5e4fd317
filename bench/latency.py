"""Latency through an exchange: 50,000 events/s on schedule, keyed aggregate, p = 2.

Prints percentiles of (time at the sink − time at which the event was due) and writes the
histogram. Default settings: buffer timeout, checkpoints every 10 s.

Beside the job runs a bare process that sleeps a millisecond at a time and notes how much
later it was woken: what the machine itself adds while others use it, too.

    python -m bench.latency [--rate 50000] [--seconds 60] [--out docs/latency.md]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bench.latency_connector import BIN_US, BINS
from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster

SQL = """
CREATE TABLE ticks (due TIMESTAMP(6), `key` BIGINT) WITH (
  'connector' = 'python:bench.latency_connector:Ticks',
  'rate' = '{rate}', 'seconds' = '{seconds}', 'keys' = '{keys}', 'readers' = '2');
CREATE TABLE measured (due TIMESTAMP(6), `key` BIGINT, n BIGINT) WITH (
  'connector' = 'python:bench.latency_connector:Histogram', 'path' = '{path}');
INSERT INTO measured SELECT MAX(due), `key`, COUNT(*) FROM ticks GROUP BY `key`;
"""
PERCENTILES = (50, 90, 99, 99.9, 100)
#: Prints, every second, how many µs too late each 1 ms sleep of that second ended.
BARE = """
import time
while True:
    late, end = [], time.perf_counter() + 1
    while (now := time.perf_counter()) < end:
        time.sleep(0.001)
        late.append(int((time.perf_counter() - now - 0.001) * 1e6))
    print(*late, flush=True)
"""


def percentile(counts: np.ndarray, q: float) -> float:
    """Upper edge, in ms, of the bin in which the q-th percentile lies."""
    cumulative = np.cumsum(counts)
    return (np.searchsorted(cumulative, cumulative[-1] * q / 100) + 1) * BIN_US / 1000


def measure(rate: int, seconds: int, keys: int, config: dict[str, str]) -> tuple[np.ndarray, np.ndarray, int]:
    """Counts per bin over both sinks; the bare process's; completed checkpoints."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedCluster(taskmanagers=2, slots=1) as cluster,
        ClusterClient(cluster.rest_url) as client,
    ):
        path = f"{folder}/latency"
        sql = SQL.format(rate=rate, seconds=seconds, keys=keys, path=path)
        with subprocess.Popen([sys.executable, "-c", BARE], stdout=subprocess.PIPE, text=True) as bare:
            job = client.submit({"sql": sql, "config": {"parallelism.default": "2", **config}})
            client.wait(job, poll_s=1.0)
            bare.terminate()
            late_us = np.array((bare.communicate()[0]).split(), np.int64)
        checkpoints = client.checkpoints(job)["counts"]
        counts = np.zeros(BINS, np.int64)
        for file in Path(folder).glob("latency-*.json"):
            for index, count in json.loads(file.read_text())["bins"].items():
                counts[int(index)] += count
    woken = np.bincount(np.clip(late_us // BIN_US, 0, BINS - 1), minlength=BINS)
    return counts, woken, checkpoints.get("completed", 0)


def percentiles(counts: np.ndarray) -> str:
    return "  ".join(f"p{q:g} {percentile(counts, q):.2f} ms" for q in PERCENTILES)


def histogram(counts: np.ndarray) -> str:
    """A text histogram: latency (ms) → share of events."""
    edges = [0, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50, 100, 1000, 10_000]
    total, lines = counts.sum(), []
    for low, high in itertools.pairwise(edges):
        n = counts[int(low * 1000 / BIN_US) : int(high * 1000 / BIN_US)].sum()
        share = n / total
        lines.append(f"{low:>6} – {high:<6} ms {n:>9,} {share:7.2%}  {'█' * round(60 * share)}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=50_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, help="also write the histogram here")
    args = parser.parse_args()
    config = dict(pair.split("=", 1) for pair in args.set)
    load = os.getloadavg()[0]
    counts, woken, checkpoints = measure(args.rate, args.seconds, args.keys, config)
    text = (
        f"{counts.sum():,} events measured at {args.rate:,}/s, {checkpoints} checkpoints; "
        f"{os.cpu_count()} cores, load {load:.1f} before, {os.getloadavg()[0]:.1f} after\n"
        f"events              {percentiles(counts)}\n"
        f"bare process, late  {percentiles(woken)}\n\n{histogram(counts)}\n"
    )
    print(text)
    if args.out:
        args.out.write_text(f"```\n{text}```\n")


if __name__ == "__main__":
    main()
