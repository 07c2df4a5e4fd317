"""Nexmark q0–q22 on an embedded cluster, beside Flink's figures.

Two task managers with a slot each, parallelism 2, streaming mode, checkpoints to disk
every 10 seconds; the sink consumes every column and keeps a checksum.

    python -m bench [--queries q5,q7] [--seconds 35 | --events 5000000] [--push-down off|both]
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.nexmark import flink
from bench.nexmark.queries import QUERIES, script
from penstock.api.client import TERMINAL, ClusterClient
from penstock.cli.embedded import EmbeddedCluster
from penstock.errors import PenstockError

#: About how many million events/s each query makes here: how long a run will be.
SPEED = {
    "q0": 7, "q1": 7, "q2": 20, "q3": 14, "q4": 1.6, "q5": 8, "q6": 0.5, "q7": 9, "q8": 20, "q9": 0.5,
    "q10": 3, "q11": 5, "q12": 8, "q14": 5, "q15": 3, "q16": 0.6, "q17": 4, "q18": 1.2, "q19": 0.9,
    "q20": 0.6, "q21": 2, "q22": 4,
}  # fmt: skip
NO_PUSH_DOWN = {"table.optimizer.source.push-down-enabled": "false"}
_TICK, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
#: Between questions to the cluster, and between looks at its processes.
_ASK_S, _LOOK_S = 0.4, 0.05


@dataclass
class Result:
    """``cpu_s``: of both slots. ``peak_bytes``: highest resident memory of both together.
    ``shuffled_bytes``: sent between vertices. ``checksum``: of the sink's rows."""

    query: str
    events: int
    seconds: float
    cpu_s: float
    peak_bytes: int
    shuffled_bytes: int
    checkpoints: int
    rows: int
    checksum: int

    @property
    def rate(self) -> float:
        """Thousand events/s."""
        return self.events / self.seconds / 1000

    def cpu_rate(self, cores: int) -> float:
        """Thousand events/s on so many cores that do nothing else: what the rate would be
        on a machine that is not shared and a query whose work is spread evenly."""
        return self.events / self.cpu_s / 1000 * cores if self.cpu_s else math.nan


class Slots:
    """CPU time and memory of the slots' processes, from /proc while they live."""

    def __init__(self, client: ClusterClient, job: str) -> None:
        self._client, self._job = client, job
        self._cpu: dict[int, float] = {}
        self._asked = 0.0
        self.peak_bytes = 0

    @property
    def cpu_s(self) -> float:
        return sum(self._cpu.values())

    def sample(self) -> None:
        if time.monotonic() - self._asked > _ASK_S:
            self._find()
        resident = 0
        for pid in self._cpu:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except OSError:  # it has ended
                continue
            self._cpu[pid] = (int(fields[11]) + int(fields[12])) / _TICK
            resident += pages * _PAGE
        self.peak_bytes = max(self.peak_bytes, resident)

    def _find(self) -> None:
        self._asked = time.monotonic()
        for process in self._client.info()["processes"]:
            for slot in process.get("slots", []):
                if slot.get("pid") and slot.get("job_id") == self._job:
                    self._cpu.setdefault(slot["pid"], 0.0)


def run_query(
    client: ClusterClient, name: str, *, events: int, rate: int, parallelism: int, config: dict[str, str]
) -> Result:
    """Submit, watch to the end, and measure between the first and the last running task."""
    source = {"connector": "nexmark", "events.num": str(events), "rate": str(rate)}
    settings = {
        "parallelism.default": str(parallelism),
        "execution.engine": "streaming",
        "execution.runtime-mode": "STREAMING",
        "execution.checkpointing.interval": "10 s",
        "table.exec.join.unbounded-state": "allow",
        **config,
    }
    sql = script(name, source, {"connector": "blackhole"})
    job = client.submit({"name": name, "sql": sql, "config": settings})
    slots = Slots(client, job)
    while (details := client.job(job))["state"] not in TERMINAL:
        until = time.monotonic() + _ASK_S
        while time.monotonic() < until:
            slots.sample()
            time.sleep(_LOOK_S)
    client.raise_if_failed(job, details)
    vertices = details["vertices"]
    started = min(v["start-time"] for v in vertices if v["start-time"] > 0)
    ended = max(v["end-time"] for v in vertices)
    return Result(
        query=name,
        events=events,
        seconds=(ended - started) / 1000,
        cpu_s=slots.cpu_s,
        peak_bytes=slots.peak_bytes,
        shuffled_bytes=int(sum(v["metrics"]["write-bytes"] for v in vertices)),
        checkpoints=client.checkpoints(job)["counts"].get("completed", 0),
        rows=sum(_sink_values(client, job, vertices, "sinkRows")),
        checksum=sum(_sink_values(client, job, vertices, "sinkChecksum")) % 2**64,
    )


def _sink_values(client: ClusterClient, job: str, vertices: list[dict[str, Any]], name: str) -> list[int]:
    """A gauge of the sink's subtasks, at their end."""
    found = []
    for vertex in vertices:
        if "Sink: " in vertex["name"]:
            values = client.vertex_metrics(job, vertex["id"])
            found += [int(v) for key, v in values.items() if key.endswith(f".{name}")]
    return found


HEADER = (
    f"{'query':<6}{'events':>9}{'seconds':>8}{'k ev/s':>9}{'CPU s':>7}{'k ev/CPU s':>11}{'peak MB':>8}"
    f"{'shuffled MB':>12}{'ckpts':>6}{'rows':>12}  {'checksum':<17}{'Flink':>6}{'ratio':>7}{'by CPU':>8}"
)


def line(result: Result, peer: float | None, cores: int) -> str:
    ratio = f"{'–':>6}{'–':>7}{'–':>8}"
    if peer:
        ratio = f"{peer:>6.0f}{result.rate / peer:>6.1f}×{result.cpu_rate(cores) / peer:>7.1f}×"
    return (
        f"{result.query:<6}{result.events / 1e6:>8.1f}M{result.seconds:>8.1f}{result.rate:>9.0f}"
        f"{result.cpu_s:>7.1f}{result.cpu_rate(1):>11.0f}{result.peak_bytes / 1e6:>8.0f}"
        f"{result.shuffled_bytes / 1e6:>12.1f}{result.checkpoints:>6}{result.rows:>12}  "
        f"{result.checksum:016x} {ratio}"
    )


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else math.nan


def run_all(args: argparse.Namespace, config: dict[str, str]) -> Iterator[Result]:
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        EmbeddedCluster(taskmanagers=2, slots=1, data_dir=Path(folder)) as cluster,
        ClusterClient(cluster.rest_url) as client,
    ):
        for name in args.queries:
            events = args.events or int(SPEED.get(name, 1) * 1e6 * args.seconds)
            try:
                yield run_query(
                    client, name, events=events, rate=args.rate, parallelism=args.parallelism, config=config
                )
            except PenstockError as err:
                print(f"{name:<6}failed: {err}", flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    args = _arguments(argv)
    why = flink.unavailable(args.peers)
    if why:
        print(f"Flink is not run: {why}. Compared with: {flink.CONDITIONS}.", flush=True)
    modes = {"on": [{}], "off": [NO_PUSH_DOWN], "both": [{}, NO_PUSH_DOWN]}[args.push_down]
    for mode in modes:
        print(f"\nsource push-down {'off' if mode else 'on'}\n{HEADER}", flush=True)
        ratios: list[float] = []
        by_cpu: list[float] = []
        for result in run_all(args, {**mode, **dict(args.set)}):
            peer: float | None = flink.RECORDED.get(result.query)
            if why is None:
                peer = flink.run(args.peers, result.query, events=min(result.events, 10_000_000))
            print(line(result, peer, args.parallelism), flush=True)
            if peer and result.query in flink.RECORDED:
                ratios.append(result.rate / peer)
                by_cpu.append(result.cpu_rate(args.parallelism) / peer)
        if ratios:
            print(
                f"geometric mean of {len(ratios)} queries: {geometric_mean(ratios):.1f}× Flink, lowest "
                f"{min(ratios):.1f}×; by CPU time {geometric_mean(by_cpu):.1f}×, lowest {min(by_cpu):.1f}×",
                flush=True,
            )


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--queries", type=_queries, default=list(QUERIES), metavar="q0,q5,…")
    parser.add_argument("--seconds", type=float, default=35, help="about how long each query runs")
    parser.add_argument("--events", type=int, help="events of each query, instead of --seconds")
    parser.add_argument("--rate", type=int, default=100_000, help="events a second of event time")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--push-down", choices=("on", "off", "both"), default="on")
    parser.add_argument("--set", type=_pair, action="append", default=[], metavar="KEY=VALUE")
    peers = os.environ.get(flink.PEERS)
    parser.add_argument("--peers", type=Path, default=Path(peers) if peers else None,
                        help="folder of the peers' bench: runs Flink beside each query")  # fmt: skip
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
