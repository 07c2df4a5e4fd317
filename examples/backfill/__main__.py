"""The year of the flights from New York: history on Spark, then live, as one job.

``python -m examples.backfill``
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import shutil
import sqlite3
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from rich.console import Console
from rich.table import Table

from examples.flights import replay
from examples.flights.dataset import LIVE_FROM, load, split, write_history
from examples.running import submit
from penstock.api.client import ClusterClient
from penstock.cli.jobs import progress_line
from penstock.cli.project import planned_steps, read_project
from penstock.embedded import EmbeddedCluster
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from examples.flights.dataset import Dataset

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "out" / "backfill"
#: The stream holds so much of what the files hold as well.
OVERLAP = datetime.timedelta(days=14)


@dataclass(frozen=True)
class Result:
    """``carriers``: (carrier, flights, late, worst); ``weeks``: (week, origin, flights, late)."""

    carriers: list[tuple[Any, ...]]
    weeks: list[tuple[Any, ...]]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the results")
    console, out = Console(), parser.parse_args(argv).out.absolute()
    history, live = split(load())
    prepare(history, out)
    with console.status("starting the cluster …"):
        cluster = EmbeddedCluster(taskmanagers=1, slots=4, on_event=console.print)
        cluster.start()
    try:
        with ClusterClient(cluster.rest_url) as client:
            asyncio.run(replay.create_streams(cluster.nats_url))
            file = HERE / "project.yaml"
            project = read_project(file, file.read_text())
            [step] = planned_steps(file, project, {}, {"out/backfill/": f"{out}/"})
            with ThreadPoolExecutor(1) as pool:
                replayed = pool.submit(asyncio.run, replay.replay(cluster.nats_url, overlapping(live)))
                follow(console, client, submit(client, step))
                replayed.result()
    finally:
        cluster.stop()
    show(console, result(out))
    console.print(f"The airlines are in {out / 'year.db'} (SQLite), the weeks in {out / 'weeks'} (Parquet).")
    return 0


def prepare(history: pa.Table, out: Path) -> None:
    shutil.rmtree(out, ignore_errors=True)
    write_history(history, out / "history")
    with sqlite3.connect(out / "year.db") as db:
        db.execute("CREATE TABLE carriers (carrier PRIMARY KEY, flights, late, worst)")


def overlapping(live: Dataset) -> Dataset:
    """The live flights, with those before them that are history already."""
    flights, since = load().flights, LIVE_FROM - OVERLAP
    first = int(since.timestamp()) * 1_000_000
    kept = flights.filter(pa.array(flights["left_us"].to_numpy() >= first))
    return replace(live, flights=kept)


def follow(console: Console, client: ClusterClient, job_id: str) -> None:
    """To its end; each half is told."""
    started, phase = time.monotonic(), ""

    def look(job: dict[str, Any]) -> None:
        nonlocal phase
        status.update(progress_line(job, "year", time.monotonic() - started))
        if job.get("phase") and job["phase"] != phase:
            phase = job["phase"]
            console.print(f"{time.monotonic() - started:5.1f} s  {phase}")

    with console.status("year") as status:
        client.raise_if_failed(job_id, client.wait(job_id, on_progress=look))
    console.print(f"{time.monotonic() - started:5.1f} s  the last flight of the year")


def result(out: Path) -> Result:
    with sqlite3.connect(out / "year.db") as db:
        carriers = db.execute(
            "SELECT carrier, flights, late, worst FROM carriers ORDER BY carrier"
        ).fetchall()
    weeks = ds.dataset(out / "weeks", format="parquet").to_table().to_pylist()
    return Result(carriers, sorted((w["week"], w["origin"], w["flights"], w["late"]) for w in weeks))


def show(console: Console, found: Result) -> None:
    table = Table(title="The year's flights from New York")
    for column in ("airline", "flights", "late", "worst delay, minutes"):
        table.add_column(column, justify="left" if column == "airline" else "right")
    for carrier, flights, late, worst in sorted(found.carriers, key=lambda row: -row[1]):
        table.add_row(carrier, f"{flights:,}", f"{late / flights:.0%}", f"{worst:.0f}")
    console.print(table)
    seam = LIVE_FROM.replace(tzinfo=None)
    weeks = {w for w, *_ in found.weeks}
    [across] = [w for w in weeks if w < seam < w + datetime.timedelta(days=7)]
    flights = sum(n for w, _, n, _ in found.weeks if w == across)
    console.print(
        f"{len(weeks)} weeks; that of {across:%d %B}, whose first days are history and whose last ones "
        f"are live, has {flights:,} flights."
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PenstockError as err:
        sys.exit(f"error: {err}")
    except KeyboardInterrupt:
        sys.exit(130)
