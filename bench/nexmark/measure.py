"""One query on a cluster: submit, warm up, measure the steady state, cancel.

A query that reads the events once has a source without end. The window opens when it has
run for a while and closes after the time asked for, and not before enough checkpoints were
completed in it.

Of a query that reads them more than once (bids here, auctions there) the sources do not
move together: the fast one is through while the slow one has hardly begun. It gets as many
events as it is likely to manage in the time, and is measured from its first task's start
until the last source has passed them; again with more of them if that was too soon.

q6 ranks rows that are updated later, which has no streaming result (nor has it in Flink): it
runs over a bounded source, in batch mode, to its end.

With a number of events instead, a job runs to its end and is measured as a whole: then
rows and checksum are those of a repeatable result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.nexmark.queries import QUERIES, Query, script_of
from bench.nexmark.slots import Slots
from penstock.api.client import TERMINAL, ClusterClient
from penstock.errors import InternalError

#: Running for so long before the window opens.
WARM_S = 4.0
#: Checkpoints that must be completed within the window, and how many times its length it
#: may last for them, or for the last source.
CHECKPOINTS, PATIENCE = 2, 2.5
#: How often a run that was over too soon is repeated with more events.
AGAIN = 2
#: Queries that read the events more than once: about how many millions a second they manage.
SPEED = {"q3": 55, "q4": 3, "q6": 0.3, "q8": 30, "q9": 0.7, "q20": 1.3}
#: Queries that have a result only when their input has ended.
BOUNDED = ("q6",)
_LOOK_S = 0.1


@dataclass(frozen=True)
class Result:
    """``cpu_s``: of all slots; ``evenness``: of the least busy slot over the busiest, 1 when
    all work alike. ``peak_bytes``: highest resident memory of all slots together.
    ``shuffled_bytes``: sent between vertices. ``rows``, ``checksum``: of the sink."""

    query: str
    events: int
    seconds: float
    cpu_s: float
    evenness: float
    peak_bytes: int
    shuffled_bytes: int
    checkpoints: int
    rows: int
    checksum: int

    @property
    def rate(self) -> float:
        """Thousand events/s."""
        return self.events / self.seconds / 1000


@dataclass(frozen=True)
class _Sample:
    """``events``: of the source that is furthest behind."""

    at_s: float
    events: int
    shuffled_bytes: int
    checkpoints: int
    rows: int
    checksum: int
    cpu_s: dict[int, float]


class QueryRun:
    """``seconds`` of steady state, or ``events`` from start to end."""

    def __init__(
        self,
        client: ClusterClient,
        name: str,
        *,
        rate: int,
        parallelism: int,
        config: dict[str, str],
        query: Query | None = None,
    ) -> None:
        """``query``: another one than Nexmark's of this name."""
        self._client, self._name, self._query = client, name, query or QUERIES[name]
        self._source = {"connector": "nexmark", "rate": str(rate)}
        self._config = {
            "parallelism.default": str(parallelism),
            "execution.engine": "streaming",
            "execution.runtime-mode": "BATCH" if name in BOUNDED else "STREAMING",
            "execution.checkpointing.interval": "10 s",
            "table.exec.join.unbounded-state": "allow",
            **config,
        }

    def steady(self, seconds: float) -> Result:
        speed = SPEED.get(self._name)
        if speed is None:
            return self._endless(seconds)
        if self._name in BOUNDED:
            return self.whole(int(speed * 1e6 * seconds))
        result = self._all_of(int(speed * 1e6 * seconds), seconds)
        for _ in range(AGAIN):
            if result.seconds >= seconds and result.checkpoints >= CHECKPOINTS:
                break
            longer = 1.2 * max(seconds, result.seconds)
            result = self._all_of(int(result.rate * 1000 * longer), seconds)
        return result

    def _endless(self, seconds: float) -> Result:
        self._submit(self._source)
        with self._cancelled():
            first = self._after(WARM_S, since=self._progress())
            last = self._after(seconds, since=first.at_s)
            limit = first.at_s + PATIENCE * seconds
            while last.checkpoints - first.checkpoints < CHECKPOINTS and last.at_s < limit:
                last = self._after(1.0, since=last.at_s)
        return self._between(first, last)

    def _all_of(self, events: int, seconds: float) -> Result:
        """``events`` of all sources, without what the job does after its sources' end."""
        self._submit({**self._source, "events.num": str(events)})
        with self._cancelled():
            began = self._progress()
            while (last := self._sample()).events < events and last.at_s < began + PATIENCE * seconds:
                self._look(_LOOK_S)
            started = _started_ms(self._details()) / 1000
        start = _Sample(time.monotonic() - (time.time() - started), 0, 0, 0, 0, 0, {})
        result = self._between(start, last)
        return replace(result, events=min(result.events, events))

    @contextmanager
    def _cancelled(self) -> Iterator[None]:
        try:
            yield
            failures = self._client.exceptions(self._job)["exceptionHistory"]["entries"]
            if failures:
                raise InternalError(
                    f"{self._name} failed and began again while it was measured",
                    got=str(failures[0].get("stacktrace") or failures[0]),
                )
        finally:
            if self._client.job(self._job)["state"] not in TERMINAL:
                self._client.cancel(self._job)
                self._client.wait(self._job)

    def whole(self, events: int) -> Result:
        return self._to_the_end({**self._source, "events.num": str(events)}, events)

    def of_files(self, format_: str, folder: Path, events: int) -> Result:
        """``events``: how many there are in the files."""
        source = {"connector": "filesystem", "path": str(folder.absolute()), "format": format_}
        return self._to_the_end(source, events)

    def _to_the_end(self, source: dict[str, str], events: int) -> Result:
        self._submit(source)
        while (details := self._details())["state"] not in TERMINAL:
            self._look(0.5)
        started, ended = _started_ms(details), max(v["end-time"] for v in details["vertices"])
        result = self._between(_Sample(0.0, 0, 0, 0, 0, 0, {}), self._sample())
        return replace(result, events=events, seconds=(ended - started) / 1000)

    # -- watching -------------------------------------------------------------------------

    def _submit(self, source: dict[str, str]) -> None:
        sql = script_of(self._query, source, {"connector": "blackhole"})
        self._job = self._client.submit({"name": self._name, "sql": sql, "config": self._config})
        self._slots = Slots(self._client, self._job)

    def _details(self) -> dict[str, Any]:
        details = self._client.job(self._job)
        if details["state"] in TERMINAL:
            self._client.raise_if_failed(self._job, details)
        return details

    def _look(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._slots.sample()
            time.sleep(_LOOK_S)

    def _progress(self) -> float:
        """When the first events were reported."""
        while True:
            self._look(0.3)
            if self._details()["state"] in TERMINAL:
                raise InternalError(f"{self._name} ended though its source has no end")
            sample = self._sample()
            if sample.events:
                return sample.at_s

    def _after(self, seconds: float, *, since: float) -> _Sample:
        """A sample taken at least so long after another, just after a report came in."""
        self._look(max(0.0, since + seconds - time.monotonic()))
        before = self._sample()
        while True:
            self._look(_LOOK_S)
            sample = self._sample()
            if sample.events != before.events:
                return sample
            if self._details()["state"] in TERMINAL:
                raise InternalError(f"{self._name} ended though its source has no end")

    def _sample(self) -> _Sample:
        self._slots.sample()
        rows = checksum = 0
        passed: dict[str, int] = {}
        details = self._details()
        for vertex in details["vertices"]:
            source, sink = "Source: " in vertex["name"], "Sink: " in vertex["name"]
            if not source and not sink:
                continue
            for key, value in self._client.vertex_metrics(self._job, vertex["id"]).items():
                name = key.rpartition(".")[2]
                if name == "numEvents":
                    passed[vertex["id"]] = passed.get(vertex["id"], 0) + int(value)
                rows += int(value) if name == "sinkRows" else 0
                checksum += int(value) if name == "sinkChecksum" else 0
        return _Sample(
            at_s=time.monotonic(),
            events=min(passed.values(), default=0),
            shuffled_bytes=int(sum(v["metrics"]["write-bytes"] for v in details["vertices"])),
            checkpoints=self._client.checkpoints(self._job)["counts"].get("completed", 0),
            rows=rows,
            checksum=checksum % 2**64,
            cpu_s=dict(self._slots.cpu_s),
        )

    def _between(self, first: _Sample, last: _Sample) -> Result:
        used = [cpu_s - first.cpu_s.get(pid, 0.0) for pid, cpu_s in last.cpu_s.items()]
        return Result(
            query=self._name,
            events=last.events - first.events,
            seconds=last.at_s - first.at_s,
            cpu_s=sum(used),
            evenness=min(used) / max(used) if used and max(used) else math.nan,
            peak_bytes=self._slots.peak_bytes,
            shuffled_bytes=last.shuffled_bytes - first.shuffled_bytes,
            checkpoints=last.checkpoints - first.checkpoints,
            rows=last.rows,
            checksum=last.checksum,
        )


def _started_ms(details: dict[str, Any]) -> int:
    """When the first task began to run, ms since the epoch."""
    return min(v["start-time"] for v in details["vertices"] if v["start-time"] > 0)
