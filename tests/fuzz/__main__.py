"""``python -m tests.fuzz``: random queries on every engine against DuckDB; findings are made small."""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.fuzz.campaign import case_of
from tests.fuzz.work import tried

#: Seeds that one process tries: its memory, and what a crash of it loses, stay small.
CHUNK = 25
#: Chunks between two lines that say how far a run is.
PROGRESS = 10


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--queries", type=int, default=1000, metavar="N", help="how many (default 1000)")
    parser.add_argument("--from", type=int, default=1, dest="first", metavar="SEED", help="the first seed")
    parser.add_argument("--seed", type=int, help="only this one, with its query printed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--spark", action="store_true", help="Spark as well (one session a process)")
    parser.add_argument("--findings", type=Path, help="append findings to this file, a JSON object a line")
    parser.add_argument("--no-shrink", action="store_true", help="show findings as they were generated")
    return parser.parse_args()


def chunks(first: int, count: int, size: int) -> Iterator[range]:
    for start in range(first, first + count, size):
        yield range(start, min(start + size, first + count))


def main() -> int:
    args = arguments()
    if args.seed is not None:
        case = case_of(args.seed)
        print(case.mode, case.query.text())
        [found] = tried(range(args.seed, args.seed + 1), spark=args.spark, shrink=not args.no_shrink)
        print(found.get("told", f"{found['status']} {found['words']}"))
        return 1 if "told" in found else 0
    counts: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    findings = 0
    context = multiprocessing.get_context("spawn")
    work = partial(tried, spark=args.spark, shrink=not args.no_shrink)
    size = CHUNK if not args.spark else 4 * CHUNK
    # A run for the night is ended by a signal, and tells what it has found then as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with context.Pool(args.jobs, maxtasksperchild=1) as pool, contextlib.suppress(KeyboardInterrupt):
        for number, results in enumerate(
            pool.imap_unordered(work, chunks(args.first, args.queries, size)), 1
        ):
            for found in results:
                counts[found["status"]] += 1
                if found["status"] in ("refused", "invalid"):
                    refusals[f"{found['status']}: {found['words'][:110]}"] += 1
                if "told" in found:
                    findings += 1
                    print(found["told"], end="\n\n", flush=True)
                    if args.findings is not None:
                        with args.findings.open("a") as file:
                            file.write(json.dumps(found) + "\n")
            if number % PROGRESS == 0:
                print(f"… {sum(counts.values())} queries, {findings} findings", flush=True)
    print("not compared:")
    for words, n in refusals.most_common(15):
        print(f"  {n:5d}  {words}")
    total = sum(counts.values())
    print(f"{total} queries: " + ", ".join(f"{n} {status}" for status, n in counts.most_common()))
    print(f"{total - findings} passed, {findings} failed")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
