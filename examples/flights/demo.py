"""The demo: a cluster, a replay, the job, the live board, and a balance at the end.

``python -m examples.flights.demo`` (or ``make demo``).
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec
import nats
import pyarrow.dataset as ds
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.flights import replay as replaying
from examples.flights.dataset import AIRPORTS, Dataset, load
from penstock.api.client import TERMINAL, ClusterClient
from penstock.cli.embedded import EmbeddedCluster
from penstock.errors import PenstockError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OUT = ROOT / "out" / "flights"
#: Units: minutes of delay, degrees Fahrenheit, miles an hour, inches, miles.
COLUMNS = ("from", "window (UTC)", "left", "mean", "worst", "°F", "wind", "rain", "visib.")


def job_sql(out: Path, delay: str = "'3' HOUR") -> str:
    """The job's SQL with its folders made absolute, and another watermark delay if asked."""
    text = (HERE / "job.sql").read_text()
    text = text.replace("'out/flights/", f"'{out}/")
    return text.replace("scheduled - INTERVAL '3' HOUR", f"scheduled - INTERVAL {delay}")


class Board:
    """The newest window of each airport, as it arrives on the stream BOARD."""

    def __init__(self) -> None:
        self.latest: dict[str, dict[str, Any]] = {}
        self.windows = 0
        self.published = 0
        self.recent: deque[str] = deque(maxlen=4)

    def add(self, row: dict[str, Any]) -> None:
        self.windows += 1
        self.latest[row["origin"]] = row

    def render(self, state: str, total: int) -> Group:
        table = Table(box=box.ROUNDED, title="Departures from New York 2013, by hour of schedule")
        for name in COLUMNS:
            table.add_column(name, justify="left" if name in COLUMNS[:2] else "right", no_wrap=True)
        for airport in AIRPORTS:
            row = self.latest.get(airport)
            cells = _cells(row) if row else ["…"] + [""] * 7
            table.add_row(airport, *cells)
        line = (
            f"{self.published:>9,} of {total:,} flights replayed   {self.windows:>8,} windows   job {state}"
        )
        return Group(table, Text(line))


def _cells(row: dict[str, Any]) -> list[str]:
    def number(key: str, digits: int) -> str:
        value = row.get(key)
        return "–" if value is None else f"{value:.{digits}f}"

    window = f"{row['window_start'][5:16]}–{row['window_end'][11:16]}"
    delays = [number("mean_delay", 1), number("worst_delay", 0)]
    weather = [number("temp", 0), number("wind_speed", 0), number("precip", 2), number("visib", 1)]
    return [window, str(row["departures"]), *delays, *weather]


def follow(url: str, board: Board, stop: threading.Event) -> threading.Thread:
    """Read BOARD into ``board`` on a thread of its own until ``stop``."""

    async def read() -> None:
        client = await nats.connect(url)
        try:

            async def take(message: Any) -> None:
                board.add(msgspec.json.decode(message.data))

            await client.subscribe("board.*", cb=take)
            await asyncio.to_thread(stop.wait)
        finally:
            await client.drain()

    thread = threading.Thread(target=lambda: asyncio.run(read()), daemon=True)
    thread.start()
    return thread


def start_replay(
    url: str, data: Dataset, board: Board, rate: float | None, limit: int | None
) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def progress(flights: int) -> None:
        board.published = flights

    def body() -> None:
        try:
            asyncio.run(
                replaying.replay(url, data, flights_per_second=rate, limit=limit, on_progress=progress)
            )
        except BaseException as err:
            errors.append(err)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    return thread, errors


def balance(client: ClusterClient, job_id: str, flights: int, out: Path) -> tuple[int, int]:
    """(on time, late); PenstockError when they do not add up to all flights."""
    late = ds.dataset(out / "late", format="parquet").count_rows() if any(out.glob("late/*")) else 0
    counters = client.accumulators(job_id)
    accepted, dropped = counters["numRecordsAccepted"], counters.get("numLateRecordsDropped", 0)
    if accepted + late != flights or dropped != late:
        raise PenstockError(
            "flights were lost or counted twice",
            expected=f"on time + late = {flights:,}",
            got=f"{accepted:,} + {late:,} = {accepted + late:,}; {dropped:,} counted as late",
        )
    return accepted, late


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=30_000, help="flights a second; 0 = as fast as it goes")
    parser.add_argument("--limit", type=int, help="only so many flights")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the results")
    args = parser.parse_args(argv)
    console = Console()
    out = args.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    console.print("reading the flights of 2013 …")
    data = load()
    total = min(args.limit or len(data.flights), len(data.flights))
    console.print(
        f"{len(data.flights):,} flights departed, {data.cancelled:,} were cancelled and are skipped; "
        f"{len(data.weather):,} hours of weather"
    )
    with console.status("starting the cluster …"):
        cluster = EmbeddedCluster(taskmanagers=2, slots=2, on_event=console.print)
        cluster.start()
    try:
        with ClusterClient(cluster.rest_url) as client:
            return _run(console, cluster, client, data, total, out, args)
    finally:
        cluster.stop()


def _run(
    console: Console,
    cluster: EmbeddedCluster,
    client: ClusterClient,
    data: Dataset,
    total: int,
    out: Path,
    args: argparse.Namespace,
) -> int:
    console.print(f"cluster: 2 task managers × 2 slots, dashboard {cluster.rest_url}")
    asyncio.run(replaying.create_streams(cluster.nats_url))
    board, stop = Board(), threading.Event()
    follower = follow(cluster.nats_url, board, stop)
    config = {"parallelism.default": "2", "execution.checkpointing.interval": "2 s"}
    job_id = client.submit({"sql": job_sql(out), "config": config})
    started = time.monotonic()
    thread, errors = start_replay(cluster.nats_url, data, board, args.rate or None, args.limit)
    live = Live(console=console, refresh_per_second=8, transient=False)
    with live:
        while True:
            job = client.job(job_id)
            live.update(board.render(job["state"], total))
            if job["state"] in TERMINAL or errors:
                break
            time.sleep(0.1)
    seconds = time.monotonic() - started
    stop.set()
    follower.join(10)
    if errors:
        raise errors[0]
    thread.join(10)
    client.raise_if_failed(job_id, job)
    on_time, late = balance(client, job_id, total, out)
    rows = ds.dataset(out / "board", format="parquet").count_rows()
    records = total + (len(data.weather) if args.limit is None else 0)
    console.print(
        f"\n{on_time:,} flights on time + {late:,} too late for their windows = {on_time + late:,}, all of them.\n"
        f"{rows:,} windows written. {records / seconds:,.0f} records per second over {seconds:.1f} s"
        + (f" (replay paced at {args.rate:,.0f} flights a second)." if args.rate else ".")
    )
    completed = client.checkpoints(job_id).get("counts", {}).get("completed", 0)
    console.print(f"{completed} checkpoints completed.")
    console.print(
        f"\nThe results: {out / 'board'} (Parquet), stream BOARD (JetStream, gone with the cluster);\n"
        f"late flights: {out / 'late'}",
        soft_wrap=True,
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PenstockError as err:
        sys.exit(f"error: {err}")
    except KeyboardInterrupt:
        sys.exit(130)
