"""``penstock top``: the vertices of all running jobs with their rates, the busiest first, drawn anew each second."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

from penstock.api.client import ClusterClient
from penstock.cli.showing import find_job, print_table, when

if TYPE_CHECKING:
    from rich.table import Table

_HEADERS = [
    "job", "vertex", "par.", "in/s", "out/s", "busy", "back-pressured", "watermark",
]  # fmt: skip
_WIDTH = 48
#: The last ms of the year 9999. A stream without event times, and one that has ended, has a later watermark.
_LAST_MS = 253_402_300_799_999


def vertex_rows(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a vertex of jobs, as ``GET /jobs/{id}`` describes them: the busiest first, then by job and place."""
    rows = []
    for job in jobs:
        for vertex in job["vertices"]:
            found = vertex.get("metrics", {})
            rows.append(
                {
                    "job-id": job["jid"],
                    "job": job["name"],
                    "vertex": vertex["name"],
                    "parallelism": vertex["parallelism"],
                    "records-in-per-second": found.get("read-records-per-second", 0.0),
                    "records-out-per-second": found.get("write-records-per-second", 0.0),
                    "busy": found.get("busy-ratio", 0.0),
                    "back-pressured": found.get("backpressure-ratio", 0.0),
                    "watermark": found.get("watermark"),
                }
            )
    return sorted(rows, key=lambda row: -row["busy"])


def watermark_text(ms: int | None) -> str:
    """A watermark in ms since the epoch as local time; ``at its end`` where no later event time can come."""
    return "at its end" if ms is not None and ms >= _LAST_MS else when(ms)


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["job"][:24],
        row["vertex"][:_WIDTH],
        str(row["parallelism"]),
        f"{row['records-in-per-second']:,.0f}",
        f"{row['records-out-per-second']:,.0f}",
        f"{row['busy']:.0%}",
        f"{row['back-pressured']:.0%}",
        watermark_text(row["watermark"]),
    ]


def _table(rows: list[dict[str, Any]], jobs: int) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=f"{jobs} running jobs; Ctrl-C leaves")
    for header in _HEADERS:
        table.add_column(
            header, no_wrap=True, justify="left" if header in ("job", "vertex", "watermark") else "right"
        )
    for row in rows:
        busy = max(row["busy"], row["back-pressured"])
        table.add_row(*_cells(row), style="red" if busy > 0.9 else "yellow" if busy > 0.6 else "")
    return table


def show_top(url: str, start: str | None, format_: str, *, interval_s: float, once: bool) -> None:
    """Draw the vertices until Ctrl-C; once, where stdout is no terminal, ``once`` is set or JSON is asked for."""
    with ClusterClient(url, patience_s=2) as client:

        def look() -> list[dict[str, Any]]:
            if start is not None:
                return [client.job(find_job(client, start))]
            return [client.job(j["jid"]) for j in client.jobs() if j["state"] == "RUNNING"]

        if format_ == "json":
            print(json.dumps(vertex_rows(look()), indent=2))
            return
        if once or not sys.stdout.isatty():
            jobs = look()
            print_table(_HEADERS, [_cells(row) for row in vertex_rows(jobs)])
            return
        from rich.console import Console
        from rich.live import Live

        console = Console()
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                jobs = look()
                shown = vertex_rows(jobs)[: max(1, console.height - 5)]
                live.update(_table(shown, len(jobs)), refresh=True)
                time.sleep(interval_s)
