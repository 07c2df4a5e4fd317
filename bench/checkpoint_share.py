"""What share of a job's CPU time its checkpoints take: the same events on an embedded cluster,
without checkpoints, with one every 10 s and one every second.

Two task managers with a slot each keep two cores busy. The three runs follow one another in
turns, so that what the neighbours do meets all alike; CPU seconds are those of the slots, and a
ratio is that of a run to the one without checkpoints of the same round.

    python -m bench.checkpoint_share [--seconds 20] [--rounds 5] [--queries keys,q5]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.nexmark.measure import QueryRun, Result
from bench.nexmark.queries import QUERIES, Query
from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster

#: Long enough that no periodic checkpoint begins in a run.
INTERVALS = {"none": "1 h", "10 s": "10 s", "1 s": "1 s"}
#: A million keys of which every one is as likely.
KEYS = Query(
    "update",
    "k BIGINT, n BIGINT, total BIGINT, high BIGINT",
    "SELECT MOD(auction * 7919 + price, 1000000) AS k, COUNT(*), SUM(price), MAX(price) FROM bid "
    "GROUP BY MOD(auction * 7919 + price, 1000000)",
)


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        EmbeddedCluster(taskmanagers=2, slots=1, data_dir=Path(folder)) as cluster,
        ClusterClient(cluster.rest_url) as client,
    ):
        print(
            "| query | events/s | CPU s without | every 10 s: checkpoints | CPU | every second: checkpoints | CPU |"
        )
        print("|---|---|---|---|---|---|---|", flush=True)
        for name in args.queries:
            _compare(client, name, args.seconds, args.rounds)
    return 0


def _compare(client: ClusterClient, name: str, seconds: float, rounds: int) -> None:
    def run(interval: str, events: int | None = None) -> Result:
        config = {"execution.checkpointing.interval": INTERVALS[interval]}
        query = KEYS if name == "keys" else QUERIES[name]
        one = QueryRun(client, name, rate=100_000, parallelism=2, config=config, query=query)
        return one.steady(5) if events is None else one.whole(events)

    events = int(run("none").rate * 1000 * seconds)
    found: dict[str, list[Result]] = {interval: [] for interval in INTERVALS}
    for n in range(rounds):
        order = list(INTERVALS)
        for interval in order[n % 3 :] + order[: n % 3]:
            found[interval].append(run(interval, events))
            last = found[interval][-1]
            print(
                f"  {name} {interval}: {last.seconds:.1f} s, {last.cpu_s:.2f} CPU s, {last.checkpoints} checkpoints",
                file=sys.stderr,
                flush=True,
            )
    plain = np.array([r.cpu_s for r in found["none"]])
    cells = [name, f"{np.median([r.rate for r in found['none']]) / 1000:.2f} M"]
    cells.append(f"{np.median(plain):.1f}")
    for interval in ("10 s", "1 s"):
        used = np.array([r.cpu_s for r in found[interval]])
        cells += [
            f"{np.median([r.checkpoints for r in found[interval]]):.0f}",
            f"{np.median(used / plain) - 1:+.1%}",
        ]
    print(f"| {' | '.join(cells)} |", flush=True)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.checkpoint_share", description=__doc__)
    parser.add_argument("--queries", type=lambda text: text.split(","), default=["keys", "q5"])
    parser.add_argument("--seconds", type=float, default=20, help="about how long a run takes")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args(argv)
    unknown = [name for name in args.queries if name != "keys" and name not in QUERIES]
    if unknown:
        parser.error(f"no such query: {', '.join(unknown)}; there are keys, {', '.join(QUERIES)}")
    return args


if __name__ == "__main__":
    raise SystemExit(main())
