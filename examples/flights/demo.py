"""The demo: a cluster, the project's two halves, the live board, and a balance at the end.

First the history of nine months on Spark: what is usual. Then the flights of the last three,
replayed: the board, and what is unusual, on the streaming engine.

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
from examples.flights.dataset import AIRPORTS, Dataset, load, split, write_history
from penstock.api.client import TERMINAL, ClusterClient
from penstock.cli.jobs import progress_line
from penstock.cli.project import Step, planned_steps, read_project
from penstock.embedded import EmbeddedCluster
from penstock.errors import PenstockError
from penstock.sql.results import PlannedJob

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
    """The newest window of each airport, as it arrives on the stream BOARD, and the newest of
    what is unusual."""

    def __init__(self) -> None:
        self.latest: dict[str, dict[str, Any]] = {}
        self.unusual: deque[dict[str, Any]] = deque(maxlen=4)
        self.flagged = 0
        self.windows = 0
        self.published = 0

    def add(self, row: dict[str, Any]) -> None:
        self.windows += 1
        self.latest[row["origin"]] = row

    def flag(self, row: dict[str, Any]) -> None:
        self.flagged += 1
        self.unusual.append(row)

    def render(self, state: str, total: int) -> Group:
        table = Table(box=box.ROUNDED, title="Departures from New York 2013, by hour of schedule")
        for name in COLUMNS:
            table.add_column(name, justify="left" if name in COLUMNS[:2] else "right", no_wrap=True)
        for airport in AIRPORTS:
            row = self.latest.get(airport)
            cells = _cells(row) if row else ["…"] + [""] * 7
            table.add_row(airport, *cells)
        line = (
            f"{self.published:>9,} of {total:,} flights replayed   {self.windows:>8,} windows   "
            f"{self.flagged:>5,} unusual   job {state}"
        )
        return Group(table, *(Text(_unusual(row), style="yellow") for row in self.unusual), Text(line))


def _unusual(row: dict[str, Any]) -> str:
    return (
        f"  unusual: {row['carrier']} from {row['origin']} {row['window_start'][5:16]}  "
        f"{row['departures']} left {row['mean_delay']:.0f} min late, usual at that hour "
        f"{row['usual_delay']:.0f} ± {row['spread']:.0f}"
    )


def _cells(row: dict[str, Any]) -> list[str]:
    def number(key: str, digits: int) -> str:
        value = row.get(key)
        return "–" if value is None else f"{value:.{digits}f}"

    window = f"{row['window_start'][5:16]}–{row['window_end'][11:16]}"
    delays = [number("mean_delay", 1), number("worst_delay", 0)]
    weather = [number("temp", 0), number("wind_speed", 0), number("precip", 2), number("visib", 1)]
    return [window, str(row["departures"]), *delays, *weather]


def follow(url: str, board: Board, stop: threading.Event) -> threading.Thread:
    """Read BOARD and UNUSUAL into ``board`` on a thread of its own until ``stop``."""

    async def read() -> None:
        client = await nats.connect(url)
        try:

            async def take(message: Any) -> None:
                board.add(msgspec.json.decode(message.data))

            async def warn(message: Any) -> None:
                board.flag(msgspec.json.decode(message.data))

            await client.subscribe("board.*", cb=take)
            await client.subscribe("unusual.*", cb=warn)
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
    """(on time, late) at the board; PenstockError when some windows have not seen all flights,
    or what came too late was not set aside."""
    accepted, dropped = (
        _by_operator(client, job_id, f"num{x}") for x in ("RecordsAccepted", "LateRecordsDropped")
    )
    late = ds.dataset(out / "late", format="parquet").count_rows() if any(out.glob("late/*")) else 0
    seen = {name: n + dropped.get(name, 0) for name, n in accepted.items()}
    if set(seen.values()) != {flights} or sum(dropped.values()) != late:
        raise PenstockError(
            "flights were lost or counted twice",
            expected=f"{flights:,} on time or late at every window, the late ones set aside",
            got=f"{seen}, late {dropped}; {late:,} set aside",
        )
    board = next(name for name in accepted if "(hop)" in name)
    return accepted[board], dropped.get(board, 0)


def _by_operator(client: ClusterClient, job_id: str, metric: str) -> dict[str, int]:
    """A counter of each operator that has it, added up over its subtasks."""
    found: dict[str, int] = {}
    for vertex in client.job(job_id)["vertices"]:
        for key, value in client.vertex_metrics(job_id, vertex["id"]).items():
            operator, _, name = key.partition(".")[2].rpartition(".")
            if name == metric:
                found[operator] = found.get(operator, 0) + int(value)
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=8_000, help="flights a second; 0 = as fast as it goes")
    parser.add_argument("--limit", type=int, help="only so many of the live flights")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the results")
    args = parser.parse_args(argv)
    console = Console()
    out = args.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    console.print("reading the flights of 2013 …")
    everything = load()
    history, data = split(everything)
    write_history(history, out / "history")
    total = min(args.limit or len(data.flights), len(data.flights))
    console.print(
        f"{len(everything.flights):,} flights departed, {data.cancelled:,} were cancelled and are skipped: "
        f"{len(history):,} of January to September are history,\n{len(data.flights):,} of October to December "
        f"are replayed, with {len(data.weather):,} hours of weather"
    )
    with console.status("starting the cluster …"):
        cluster = EmbeddedCluster(taskmanagers=2, slots=2, on_event=console.print)
        cluster.start()
    try:
        with ClusterClient(cluster.rest_url) as client:
            return _run(console, cluster, client, data, len(history), total, out, args)
    finally:
        cluster.stop()


def submit(client: ClusterClient, step: tuple[Step, PlannedJob]) -> str:
    graph = step[1].job_graph
    return client.submit({"name": f"flights: {step[0].name}", "job_graph": msgspec.to_builtins(graph)})


def _history(console: Console, client: ClusterClient, step: tuple[Step, PlannedJob], flights: int) -> None:
    """The first half, to its end."""
    started = time.monotonic()
    with console.status("what is usual: the history on Spark …") as status:
        job_id = submit(client, step)

        def show(job: dict[str, Any]) -> None:
            status.update(f"what is usual: {progress_line(job, 'history', time.monotonic() - started)}")

        job = client.wait(job_id, on_progress=show)
    client.raise_if_failed(job_id, job)
    engine = step[1].job_graph.plan.splitlines()[1]
    console.print(
        f"{flights:,} flights of history read in {time.monotonic() - started:.1f} s; engine {engine}"
    )


def _run(
    console: Console,
    cluster: EmbeddedCluster,
    client: ClusterClient,
    data: Dataset,
    past: int,
    total: int,
    out: Path,
    args: argparse.Namespace,
) -> int:
    console.print(f"cluster: 2 task managers × 2 slots, dashboard {cluster.rest_url}")
    file = HERE / "project.yaml"
    steps = planned_steps(file, read_project(file, file.read_text()), {}, {"'out/flights/": f"'{out}/"})
    _history(console, client, next(steps), past)
    asyncio.run(replaying.create_streams(cluster.nats_url))
    board, stop = Board(), threading.Event()
    follower = follow(cluster.nats_url, board, stop)
    job_id = submit(client, next(steps))
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
        f"\n{past:,} flights of history + {on_time:,} live ones on time + {late:,} too late for their windows "
        f"= {past + on_time + late:,}"
        + (", all of them.\n" if args.limit is None else ".\n")
        + f"{rows:,} windows written, {board.flagged:,} unusual hours flagged. {records / seconds:,.0f} records per second over {seconds:.1f} s"
        + (f" (replay paced at {args.rate:,.0f} flights a second)." if args.rate else ".")
    )
    completed = client.checkpoints(job_id).get("counts", {}).get("completed", 0)
    console.print(f"{completed} checkpoints completed.")
    console.print(
        f"\nThe results: {out / 'board'}, {out / 'unusual'} (Parquet; also the streams BOARD and UNUSUAL, gone "
        f"with the cluster);\nwhat is usual: {out / 'usual'}; late flights: {out / 'late'}",
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
