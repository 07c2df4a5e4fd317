"""Train on nine months of flights, score the other three as they leave, and compare.

``python -m examples.delays``
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from rich.console import Console
from rich.table import Table

from examples.delays.quality import auc, log_loss
from examples.flights import replay
from examples.flights.dataset import load, split, write_history
from examples.running import run, steps_of, submit
from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from examples.flights.dataset import Dataset

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "out" / "delays"
LATE_MINUTES = 15


@dataclass(frozen=True)
class Result:
    """Of the live flights: how many, their share that was late, and by predictor its AUC and log
    loss. A baseline gives the share that was late in the history, by carrier and hour or hour."""

    flights: int
    late: float
    quality: dict[str, tuple[float, float]]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limit", type=int, help="only so many of the live flights")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the results")
    args = parser.parse_args(argv)
    console, out = Console(), args.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    history, live = split(load())
    write_history(history, out / "history")
    console.print(f"{len(history):,} flights of January to September to learn from")
    with console.status("starting the cluster …"):
        cluster = EmbeddedCluster(taskmanagers=1, slots=4, on_event=console.print)
        cluster.start()
    try:
        with ClusterClient(cluster.rest_url) as client:
            steps = steps_of(HERE / "project.yaml", out)
            run(console, client, next(steps))
            score(client, cluster.nats_url, next(steps), live, args.limit)
    finally:
        cluster.stop()
    show(console, compare(history, ds.dataset(out / "scores", format="parquet").to_table()))
    console.print(f"The model is {out / 'model'}, the scores are {out / 'scores'} (Parquet).")
    return 0


def score(client: ClusterClient, nats_url: str, step: tuple, live: Dataset, limit: int | None) -> None:
    """The streaming job over the replay, to its end."""
    asyncio.run(replay.create_streams(nats_url))
    job_id = submit(client, step)
    asyncio.run(replay.replay(nats_url, live, limit=limit))
    client.raise_if_failed(job_id, client.wait(job_id))


def compare(history: pa.Table, scores: pa.Table) -> Result:
    late = scores["late"].to_numpy()
    predictors = {
        "the model, in the stream": scores["probability"].to_numpy(),
        "share by carrier and hour": baseline(history, scores, ["carrier", "hour"]),
        "share by hour": baseline(history, scores, ["hour"]),
        "share of all": baseline(history, scores, []),
    }
    quality = {name: (auc(late, p), log_loss(late, p)) for name, p in predictors.items()}
    return Result(len(late), float(late.mean()), quality)


def baseline(history: pa.Table, flights: pa.Table, keys: list[str]) -> np.ndarray:
    """For each flight, how often those of its keys were late; where that is not known, how often
    all were."""

    def keyed(table: pa.Table) -> pa.Table:
        return table.append_column("hour", pc.hour(table["time_hour"]))

    past = keyed(history)
    past = past.append_column("was_late", pc.cast(pc.greater(past["dep_delay"], LATE_MINUTES), pa.float64()))
    of_all = pc.mean(past["was_late"])
    if not keys:
        return np.full(len(flights), of_all.as_py())
    shares = past.group_by(keys).aggregate([("was_late", "mean")])
    numbered = keyed(flights).append_column("row", pa.array(np.arange(len(flights))))
    joined = numbered.join(shares, keys).sort_by("row")
    return pc.fill_null(joined["was_late_mean"], of_all).to_numpy()


def show(console: Console, result: Result) -> None:
    console.print(
        f"{result.flights:,} flights of October to December scored as they left; {result.late:.1%} left more than "
        f"{LATE_MINUTES} minutes late.",
        soft_wrap=True,
    )
    table = Table("", "AUC", "log loss")
    for name, (area, loss) in result.quality.items():
        table.add_row(name, f"{area:.3f}", f"{loss:.4f}")
    console.print(table)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PenstockError as err:
        sys.exit(f"error: {err}")
    except KeyboardInterrupt:
        sys.exit(130)
