"""Upgrade a running job, see what becomes of its state, and roll back: ``python -m examples.upgrade``

Each step is a command of ``penstock``, which is printed, on a cluster of its own.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from examples.running import penstock
from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from penstock.errors import PenstockError

HERE = Path(__file__).parent
OUT = Path("out") / "upgrade"
Totals = dict[str, int]


class Demo:
    """The steps, against one cluster."""

    def __init__(self, console: Console, client: ClusterClient, url: str, out: Path) -> None:
        self._console, self._client, self._url, self._out = console, client, url, out

    def run(self) -> list[Totals]:
        """The orders that each region had in the end of each version's time."""
        first = self._start(HERE / "v1.sql")
        seen = [self._sold(first, more_than={})]
        self._say("the second version keeps what the first has counted, and counts something new:")
        savepoint = self._stopped(first)
        self._command("savepoint", "diff", savepoint, str(HERE / "v2.sql"))
        self._say("another version would drop what was counted, and is refused before it costs a slot:")
        self._refused("run", "--detached", "-s", savepoint, str(HERE / "refused.sql"), "--cluster", self._url)
        second = self._start(HERE / "v2.sql", savepoint)
        seen.append(self._sold(second, more_than=seen[-1]))
        self._say(
            "the first version goes on where it was stopped: what the second one has counted, it counts itself"
        )
        self._stopped(second)
        third = self._start(HERE / "v1.sql", savepoint)
        seen.append(self._sold(third, more_than=seen[-1]))
        self._stopped(third)
        return seen

    def _start(self, script: Path, savepoint: str | None = None) -> str:
        before = {job["jid"] for job in self._client.jobs()}
        restored = ["-s", savepoint] if savepoint else []
        self._command("run", "--detached", *restored, str(script), "--cluster", self._url)
        (job_id,) = {job["jid"] for job in self._client.jobs()} - before
        return str(job_id)

    def _stopped(self, job_id: str) -> str:
        folder = str(self._out / "savepoints")
        return self._command("stop", job_id, "--savepoint-path", folder, "--cluster", self._url).splitlines()[
            -1
        ]

    def _sold(self, job_id: str, *, more_than: Totals) -> Totals:
        """The table, once each region has more orders than before."""
        while True:
            self._client.raise_if_failed(job_id, self._client.job(job_id))
            totals = read(self._out / "sales.db")
            if len(totals) == 3 and all(totals[region] > n for region, n in more_than.items()):
                self._say(f"table totals: {totals}")
                return totals
            time.sleep(0.1)

    def _command(self, *words: str) -> str:
        self._console.print(f"[bold]$ penstock {' '.join(words)}[/bold]", soft_wrap=True)
        printed = penstock(*words)
        self._console.print(printed, markup=False, soft_wrap=True)
        return printed

    def _refused(self, *words: str) -> None:
        try:
            self._command(*words)
        except subprocess.CalledProcessError as err:
            self._console.print(err.stderr.strip(), markup=False, soft_wrap=True)
        else:
            raise PenstockError("the job was not refused", expected="an error that names the filter")

    def _say(self, text: str) -> None:
        self._console.print(f"[cyan]{text}[/cyan]", soft_wrap=True)


def read(database: Path) -> Totals:
    """The orders of each region."""
    with sqlite3.connect(database) as connection:
        return dict(connection.execute("SELECT region, orders FROM totals ORDER BY region").fetchall())


def prepare(out: Path) -> None:
    """A fresh database with the two tables."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with sqlite3.connect(out / "sales.db") as connection:
        connection.execute("CREATE TABLE totals (region TEXT PRIMARY KEY, orders BIGINT, cents BIGINT)")
        connection.execute("CREATE TABLE dear (region TEXT PRIMARY KEY, orders BIGINT)")


def main() -> int:
    console, out = Console(), OUT.absolute()
    prepare(out)
    with console.status("starting the cluster …"):
        cluster = EmbeddedCluster(taskmanagers=1, slots=4, on_event=console.print)
        cluster.start()
    try:
        with ClusterClient(cluster.rest_url) as client:
            Demo(console, client, cluster.rest_url, out).run()
    finally:
        cluster.stop()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PenstockError as err:
        sys.exit(f"error: {err}")
    except KeyboardInterrupt:
        sys.exit(130)
