"""Nexmark q0–q22 on an embedded cluster, beside Flink's figures.

Two task managers with a slot each, parallelism 2, streaming mode, checkpoints to disk
every 10 seconds; the sink consumes every column and keeps a checksum. Prints Markdown.

    python -m bench [--queries q5,q7] [--seconds 30 | --events 5000000] [--push-down off|both]
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.nexmark import flink
from bench.nexmark.measure import QueryRun, Result
from bench.nexmark.queries import QUERIES
from penstock.api.client import ClusterClient
from penstock.cli.embedded import EmbeddedCluster
from penstock.errors import PenstockError

NO_PUSH_DOWN = {"table.optimizer.source.push-down-enabled": "false"}
COLUMNS = (
    "query", "events (M)", "seconds", "k ev/s", "k ev/CPU s", "evenness", "peak MB", "shuffled MB",
    "ckpts", "rows", "checksum", "Flink k ev/s", "ratio", "by CPU",
)  # fmt: skip


def header() -> str:
    rule = "|".join("---" for _ in COLUMNS)
    return f"| {' | '.join(COLUMNS)} |\n|{rule}|"


def line(result: Result, peer: float | None, cores: int) -> str:
    ratios = ["–", "–", "–"]
    if peer:
        ratios = [f"{peer:.0f}", f"{result.rate / peer:.1f}×", f"{result.cpu_rate(cores) / peer:.1f}×"]
    cells = [
        f"{result.query:<4}", f"{result.events / 1e6:6.1f}", f"{result.seconds:5.1f}", f"{result.rate:6,.0f}",
        f"{result.cpu_rate(1):6,.0f}", f"{result.evenness:4.2f}", f"{result.peak_bytes / 1e6:6,.0f}",
        f"{result.shuffled_bytes / 1e6:6,.0f}", f"{result.checkpoints:2}", f"{result.rows:11,}",
        f"`{result.checksum:016x}`", *ratios,
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else math.nan


def run_all(args: argparse.Namespace, config: dict[str, str]) -> Iterator[Result]:
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        EmbeddedCluster(taskmanagers=2, slots=1, data_dir=Path(folder)) as cluster,
        ClusterClient(cluster.rest_url) as client,
    ):
        for name in args.queries:
            run = QueryRun(client, name, rate=args.rate, parallelism=args.parallelism, config=config)
            try:
                yield run.whole(args.events) if args.events else run.steady(args.seconds)
            except PenstockError as err:
                print(f"{name} failed: {err}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    why = flink.unavailable(args.peers)
    if why:
        print(f"Flink is not run: {why}.", file=sys.stderr, flush=True)
    modes: list[dict[str, str]] = {"on": [{}], "off": [NO_PUSH_DOWN], "both": [{}, NO_PUSH_DOWN]}[
        args.push_down
    ]
    done = 0
    for mode in modes:
        print(f"\nSource push-down {'off' if mode else 'on'}; Flink: ", end="")
        print(f"{flink.CONDITIONS if why else 'run beside'}.\n\n{header()}", flush=True)
        ratios: list[float] = []
        by_cpu: list[float] = []
        for result in run_all(args, {**mode, **dict(args.set)}):
            peer: float | None = flink.RECORDED.get(result.query)
            if why is None:
                peer = flink.run(args.peers, result.query, events=args.flink_events)
            print(line(result, peer, args.parallelism), flush=True)
            done += 1
            if peer and result.query in flink.RECORDED:
                ratios.append(result.rate / peer)
                by_cpu.append(result.cpu_rate(args.parallelism) / peer)
        if ratios:
            print(
                f"\nGeometric mean of {len(ratios)} queries: **{geometric_mean(ratios):.1f}× Flink**, lowest "
                f"{min(ratios):.1f}×; by CPU time {geometric_mean(by_cpu):.1f}×, lowest {min(by_cpu):.1f}×.",
                flush=True,
            )
    return 0 if done == len(modes) * len(args.queries) else 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--queries", type=_queries, default=list(QUERIES), metavar="q0,q5,…")
    parser.add_argument("--seconds", type=float, default=30, help="steady state to measure of each query")
    parser.add_argument("--events", type=int, help="events of each query, instead of --seconds")
    parser.add_argument("--rate", type=int, default=100_000, help="events a second of event time")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--push-down", choices=("on", "off", "both"), default="on")
    parser.add_argument("--set", type=_pair, action="append", default=[], metavar="KEY=VALUE")
    peers = os.environ.get(flink.PEERS)
    parser.add_argument("--peers", type=Path, default=Path(peers) if peers else None,
                        help="folder of the peers' bench: runs Flink beside each query")  # fmt: skip
    parser.add_argument("--flink-events", type=int, default=10_000_000, help="events of Flink's runs")
    return parser.parse_args(argv)


def _queries(text: str) -> list[str]:
    names = list(flink.RECORDED) if text == "flink" else text.split(",")
    unknown = [n for n in names if n not in QUERIES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no such query: {', '.join(unknown)} (known: {', '.join(QUERIES)})")
    return names


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value


if __name__ == "__main__":
    sys.exit(main())
