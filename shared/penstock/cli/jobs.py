"""Runs planned jobs from the command line: a cluster to run on, progress, results."""

from __future__ import annotations

import contextlib
import sys
import time
from textwrap import indent
from typing import TYPE_CHECKING, Any, TextIO

from penstock.api.attached import withdraw
from penstock.api.client import TERMINAL, ClusterClient
from penstock.api.execution import own_engine_first
from penstock.cli.leaving import awaited_end

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.connectors.collect import ResultChunk
    from penstock.embedded import EmbeddedCluster
    from penstock.types.logical import Schema

#: Seconds between two drawings of a live table.
REFRESH_S = 0.2
#: Seconds after which the reason for a job's waiting is printed.
NOTICE_S = 2.0
#: The most rows of a live table.
LIVE_ROWS = 40
SPARK_STARTS = "Spark starts, or is being connected to"


class ClusterAccess:
    """Access to the cluster at an address, or to an embedded cluster that starts when it is first needed."""

    def __init__(
        self,
        url: str | None,
        *,
        slots: int,
        config: dict[str, str] | None = None,
        slot_output: TextIO | None = None,
    ) -> None:
        self._url = url
        self._slot_output = slot_output
        self._slots = slots
        self._config = config or {}
        self._embedded: EmbeddedCluster | None = None
        self._ready = False
        self._client: ClusterClient | None = None

    def __enter__(self) -> ClusterAccess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()
        if self._embedded is not None:
            self._embedded.stop()

    def prepare(self) -> None:
        """Start the processes of an embedded cluster without waiting for them, so that planning runs meanwhile."""
        if self._url is None and self._embedded is None:
            from penstock.embedded import EmbeddedCluster

            self._embedded = EmbeddedCluster(
                taskmanagers=1,
                slots=self._slots,
                config=self._config,
                on_event=lambda text: print(text, file=sys.stderr),
                slot_output=self._slot_output,
            )
            self._embedded.launch()

    def defaults(self) -> dict[str, str]:
        """The cluster's defaults for jobs that are planned here. An embedded cluster has none of its own."""
        return (
            {}
            if self._embedded is not None or self._url is None
            else own_engine_first(self.client.job_defaults())
        )

    @property
    def client(self) -> ClusterClient:
        """A client of the cluster, which is ready. Starts an embedded cluster if there is none."""
        self.prepare()
        if self._embedded is not None and not self._ready:
            with status("starting a cluster …"):
                self._embedded.wait_ready()
            self._url, self._ready = self._embedded.rest_url, True
        if self._client is None:
            assert self._url is not None
            self._client = ClusterClient(self._url)
        return self._client


@contextlib.contextmanager
def status(text: str) -> Iterator[None]:
    """Show a spinner with ``text`` while the block runs, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield


def follow_job(client: ClusterClient, job_id: str, name: str) -> dict[str, Any]:
    """Wait until the job has ended and return it; raise its error. On a terminal a line shows progress."""
    shown = sys.stderr.isatty()
    started = time.monotonic()
    notice, failures = Notice(name), FailedAttempts(client, job_id, name)

    def progress(job: dict[str, Any]) -> None:
        failures.look(job)
        if shown:
            sys.stderr.write(f"\r\x1b[K{progress_line(job, name, time.monotonic() - started)}")
            sys.stderr.flush()
        else:
            notice.look(job)

    try:
        job = client.wait(job_id, on_progress=progress)
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
    say_set_aside(client, job_id)
    return job


class Notice:
    """Prints once what a job waits for, or where it is stalled, if no progress line is drawn."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._said = ""
        self._since: float | None = None

    def look(self, job: dict[str, Any]) -> None:
        """Check the job, as REST describes it; print the reason if the job has waited for NOTICE_S seconds."""
        if not (job.get("waiting-for") or job.get("stalled")):
            self._since = None
            return
        # Every job waits for a short time, so the reason is printed only later.
        self._since = self._since or time.monotonic()
        text = progress_line(job, self._name, 0.0)
        if text != self._said and time.monotonic() - self._since >= NOTICE_S:
            self._said = text
            print(text, file=sys.stderr, flush=True)


class FailedAttempts:
    """Prints the error of each failed attempt when the job restarts, not only at the job's end."""

    def __init__(self, client: ClusterClient, job_id: str, name: str) -> None:
        self._client, self._job_id, self._name = client, job_id, name
        self._seen = (1, "")
        self._told = 0
        self._said = ""

    def look(self, job: dict[str, Any]) -> None:
        """Check the job, as REST describes it; print the errors of attempts that failed since the last call."""
        now = (job["attempt"], job["state"])
        if now == self._seen or job["state"] in TERMINAL:
            return
        before, self._seen = self._seen, now
        if now[0] == before[0] and now[1] != "RESTARTING":
            return
        entries = self._client.exceptions(self._job_id)["exceptionHistory"]["entries"]
        for entry in reversed(entries):  # the newest comes first
            if entry["attempt"] > self._told:
                self._told = entry["attempt"]
                self._say(entry["attempt"], entry["stacktrace"])

    def _say(self, attempt: int, error: str) -> None:
        head = f"{self._name}: attempt {attempt} failed, the job begins anew"
        text = f"{head}: the same error" if error == self._said else f"{head}:\n{indent(error, '  ')}"
        self._said = error
        # This overwrites the line of progress, which is drawn again below the text.
        print(f"\r\x1b[K{text}" if sys.stderr.isatty() else text, file=sys.stderr, flush=True)


def say_set_aside(client: ClusterClient, job_id: str) -> None:
    """Print how many records the ``on-error`` policies have left out, if any."""
    bad = client.accumulators(job_id).get("numRecordsInErrors", 0)
    if bad:
        print(
            f"{bad:,} record{'' if bad == 1 else 's'} set aside by on-error (job {job_id}; "
            f"dead letters: {client.url}/jobs/{job_id}/dead-letters)",
            file=sys.stderr,
        )


def progress_line(job: dict[str, Any], name: str, seconds: float) -> str:
    """``name RUNNING 12 s, 1,234,567 records in``, or what the job waits for."""
    if job.get("waiting-for"):
        return f"{name} waits: {job['waiting-for']}"
    for slot in job.get("stalled", []):
        return f"{name}: {', '.join(slot['tasks'])} hangs in {slot['frame']}"
    if spark := job.get("spark"):
        tasks = f"{spark['tasks-completed']} of {spark['tasks']} tasks, {spark['tasks-active']} run"
        if spark["tasks-failed"]:
            tasks += f", {spark['tasks-failed']} failed"
        doing = job.get("phase") or "on Spark"
        if spark.get("starting") and job["state"] not in TERMINAL:
            return f"{name}: {job['state']} {seconds:.0f} s {doing}: {SPARK_STARTS}"
        return f"{name}: {job['state']} {seconds:.0f} s {doing}: {tasks}"
    records = max((v.get("metrics", {}).get("write-records", 0) or 0 for v in job["vertices"]), default=0)
    phase = f" ({job['phase']})" if job.get("phase") else ""
    return f"{name}: {job['state']} {seconds:.0f} s, {records:,} records{phase}"


class Results:
    """The rows of a SELECT, from a running or finished job."""

    def __init__(
        self,
        client: ClusterClient,
        job_id: str,
        schema: Schema,
        keys: Sequence[int] | None,
        mode: str = "retract",
    ) -> None:
        self._client = client
        self.job_id = job_id
        self.schema = schema
        self._keys = keys
        self._mode = mode

    def final(self) -> list[tuple[Any, ...]]:
        """All rows, when the job has ended. Raises the job's error if it failed."""
        from penstock.connectors.collect import MaterializedResult

        result = MaterializedResult(self._keys)
        for chunk in self._chunks():
            if chunk is not None:
                result.add(chunk)
        self._client.raise_if_failed(self.job_id, self._client.job(self.job_id))
        say_set_aside(self._client, self.job_id)
        return result.rows()

    def live(self, title: str, config: Mapping[str, str]) -> None:
        """Draw the current rows until the job has ended. Ctrl-C cancels the job."""
        from rich.console import Console
        from rich.live import Live

        from penstock.cli.output import make_table
        from penstock.connectors.live_result import LiveResult

        console = Console()
        result = LiveResult(self._mode, self._keys, LIVE_ROWS)
        drawn = 0.0

        def draw() -> None:
            rows, count = result.rows()
            live.update(make_table(self.schema, rows, f"{title}: {count:,} rows", config=config))

        try:
            with Live(console=console, refresh_per_second=1 / REFRESH_S) as live:
                for chunk in self._chunks():
                    if chunk is not None:
                        result.add(chunk)
                    if time.monotonic() - drawn >= REFRESH_S or chunk is None:
                        draw()
                        drawn = time.monotonic()
                draw()
        except KeyboardInterrupt:
            withdraw(self._client, self.job_id)
            awaited_end(self._client, self.job_id)
        else:
            self._client.raise_if_failed(self.job_id, self._client.job(self.job_id))

    def changes(self) -> Iterator[list[tuple[int, tuple[Any, ...]]]]:
        """Lists of (kind, row) as they arrive: the output of an unbounded query for another program."""
        from penstock.connectors.collect import changes_of

        seen = 0
        for chunk in self._chunks():
            if chunk is None:
                continue
            # After a restart the job repeats the rows since its checkpoint; those shown before are skipped.
            rows = changes_of(chunk)[max(0, seen - chunk.offset) :]
            seen = max(seen, chunk.offset + chunk.rows.num_rows)
            if rows:
                yield rows
        self._client.raise_if_failed(self.job_id, self._client.job(self.job_id))

    def _chunks(self) -> Iterator[Any]:
        """Chunks of results as they arrive; None for each poll without new rows."""
        from penstock.connectors.collect import ResultReader

        pages = self._client.results(self.job_id)
        reader, notice = ResultReader(), Notice("the query")

        def poll() -> list[ResultChunk]:
            return reader.take((c.key, c.data) for c in next(pages, []))

        failures = FailedAttempts(self._client, self.job_id, "the query")
        while not reader.ended:
            chunks = poll()
            yield from chunks
            if not chunks:
                yield None
                job = self._client.job(self.job_id)
                notice.look(job)
                failures.look(job)
                if job["state"] in TERMINAL:
                    remaining = poll()
                    yield from remaining
                    if not remaining:
                        return
