"""``penstock up``: runs a cluster in the foreground."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any

from rich.console import Console
from rich.table import Table

from penstock.embedded import EmbeddedCluster


def run_up(**options: Any) -> None:
    """Start a cluster, print its addresses, wait for Ctrl-C or SIGTERM, and stop the cluster."""
    console = Console(stderr=False)
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stopping.set())
    cluster = EmbeddedCluster(**options, on_event=lambda text: print(text, file=sys.stderr))
    with console.status("starting the cluster …"):
        cluster.start()
    try:
        _show(console, cluster)
        while not stopping.wait(0.5):
            pass
        console.print("\nstopping …")
    finally:
        cluster.stop()
    kept = f"Its data stays in {cluster.root}." if cluster.data_dir else "Nothing is left behind."
    console.print(f"Stopped. {kept}")


def _show(console: Console, cluster: EmbeddedCluster) -> None:
    """Print the addresses and folders of the cluster."""
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_row("dashboard, REST", cluster.rest_url)
    table.add_row("NATS", cluster.nats_url)
    table.add_row("leases (Valkey)", cluster.redis_url)
    table.add_row("object store", cluster.storage_url)
    table.add_row("logs", str(cluster.log_dir))
    table.add_row("slots", f"{cluster.taskmanagers} task managers × {cluster.slots} slots")
    names = ", ".join(f"{c.name} {c.pid}" for c in cluster.children)
    table.add_row("processes", names)
    console.print("[bold]Penstock is up.[/bold] Ctrl-C stops it.\n")
    console.print(table)
    console.print(
        f"\nTry:  penstock sql --cluster {cluster.rest_url}\n"
        f"      penstock run job.py --cluster {cluster.rest_url}\n"
        f"      penstock info --cluster {cluster.rest_url}",
        soft_wrap=True,
    )
