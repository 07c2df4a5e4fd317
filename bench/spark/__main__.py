"""Penstock's Spark engine, measured.

``python -m bench.spark``: five named queries over Nexmark events in Parquet beside PySpark written
by hand; pairs of runs in one warm session, medians. ``--cold``: where the seconds of a cold start
go. ``--warm``: from a submit to a cluster until its first task runs. ``--large N``: a batch of
Nexmark queries over N events on disk, with the peak memory of Java and of Python.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench.spark.events import make_events
from bench.spark.large import run_large
from bench.spark.overhead import compare
from bench.spark.startup import cold_start, warm_submit
from penstock.errors import PenstockError
from penstock.spark.session import open_session


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=20_000_000, help="of the five queries")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="a cold start, step by step")
    parser.add_argument("--warm", action="store_true", help="submit to first task")
    parser.add_argument("--large", type=int, default=0, help="events of the batch (100000000)")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--heap", default="2g", help="of Java")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "penstock-bench-spark")
    options = parser.parse_args()
    if options.cold:
        cold_start()
    if options.warm:
        warm_submit(options.rounds)
    if options.cold or options.warm:
        return
    events = options.large or options.events
    path = make_events(options.folder, events)
    size = sum(f.stat().st_size for f in path.iterdir())
    print(f"{events:,} events, {size / 2**30:.2f} GiB of Parquet; {options.master}, heap {options.heap}")
    settings = {"spark.driver.memory": options.heap, "spark.log.level": "ERROR"}
    session = open_session(options.master, settings)
    if options.large:
        run_large(session, path, events)
        return
    print(f"{'query':15} {'Penstock s':>10} {'by hand s':>10} {'ratio':>7}")
    worst = max(compare(session, path, options.rounds), key=lambda pairs: pairs.ratio)
    print(f"worst ratio {worst.ratio:.3f} ({worst.name}); the aim is at most 1.05")


if __name__ == "__main__":
    try:
        main()
    except PenstockError as err:
        sys.exit(f"error: {err}")
