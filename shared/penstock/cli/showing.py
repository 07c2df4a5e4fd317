"""Helpers of commands that show a cluster: finding a job; printing tables, times and checkpoints."""

from __future__ import annotations

import datetime as dt
import sys
from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError, nearest

if TYPE_CHECKING:
    from penstock.api.client import ClusterClient


def print_table(headers: list[str], rows: list[list[Any]]) -> None:
    """Print a table to stdout."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        table.add_column(header, no_wrap=True)
    for row in rows:
        table.add_row(*("" if v is None else str(v) for v in row))
    # In a pipe no value is cut; on a terminal ids are never cut.
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)


def when(ms: int | None) -> str:
    """The local time of ``ms`` since the epoch as text; an empty text for None and for times before the epoch."""
    if not ms or ms < 0:
        return ""
    return dt.datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def find_job(client: ClusterClient, start: str) -> str:
    """The full id of the one job whose id begins with ``start``. Raises SpecError if there is none, or several."""
    ids = [j["jid"] for j in client.jobs()]
    found = [i for i in ids if i.startswith(start)]
    if len(found) == 1 or start in found:
        return start if start in found else found[0]
    raise SpecError(
        f"{'several jobs start' if found else 'no job starts'} with {start!r}",
        expected="the id of a job, or enough of its start",
        got=", ".join(found) or f"{len(ids)} other jobs",
        remedy=nearest(start, ids) or "'penstock list' shows them",
    )


def dashboard_url(url: str, start: str | None) -> str:
    """The dashboard's address of the one job whose id begins with ``start``; without it the cluster's."""
    from penstock.api.client import ClusterClient

    with ClusterClient(url, patience_s=2) as client:
        client.overview()
        return f"{client.url}/#/jobs/{find_job(client, start)}" if start is not None else f"{client.url}/"


def last_checkpoint(checkpoint: dict[str, Any]) -> str:
    """``checkpoint 7 COMPLETED, 12.3 MB, slowest: Sum (2/4) writing its state, 840 ms``"""
    text = f"{checkpoint['kind']} {checkpoint['id']} {checkpoint['status']}"
    text += f", {checkpoint['state_size'] / 1e6:,.1f} MB"
    slowest = checkpoint.get("slowest")
    if slowest:
        text += f", slowest: {slowest['operator']} {slowest['phase']}, {slowest['ms']:,} ms"
    return text + (f"; {checkpoint['failure_message']}" if checkpoint.get("failure_message") else "")
