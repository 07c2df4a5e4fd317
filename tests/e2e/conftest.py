"""Fixtures for end-to-end tests: a real embedded cluster, and the flights job on it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from penstock.api.client import ClusterClient
from penstock.embedded import EmbeddedCluster
from tests.e2e.support import story_of, until_true
from tests.ordering import unit_of

#: ``spark_cluster``, while it runs.
_STANDING: list[EmbeddedCluster] = []


async def _ignore(_: Exception) -> None:
    """A client of the tests does not print that its server is away."""


@pytest.fixture
def until() -> Callable[..., Any]:
    return until_true


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., EmbeddedCluster]]:
    made: list[EmbeddedCluster] = []

    def make(**options: Any) -> EmbeddedCluster:
        cluster = EmbeddedCluster(**options)
        made.append(cluster)
        cluster.start()
        return cluster

    yield make
    for cluster in made:
        cluster.stop()


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[EmbeddedCluster]:
    """One for all files whose jobs run on the Spark of a task manager, which takes half a minute to start. Tests kill
    parts of it; each leaves it so that the next job runs. ``tests/ordering.py`` keeps the files in one worker."""
    with EmbeddedCluster(taskmanagers=1, slots=4) as cluster:
        _STANDING.append(cluster)
        yield cluster


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Behind the last of these files their cluster ends: while it only waits, it takes time from all other tests."""
    if nextitem is None or unit_of(nextitem.nodeid) != unit_of(item.nodeid):
        while _STANDING:
            _STANDING.pop().stop()


@dataclass
class FlightsRun:
    """One run of the flights job: submit, replay, wait, read."""

    cluster: EmbeddedCluster
    out: Path
    spec: dict[str, Any]
    limit: int | None = None
    rate: float | None = None
    #: After so many flights the replay waits for ``go``: there are rows after a fault.
    hold_at: int | None = None
    go: threading.Event = field(default_factory=threading.Event)
    job_id: str = ""
    replayed: int = 0

    def submit(self) -> str:
        from examples.flights import replay

        asyncio.run(replay.create_streams(self.cluster.nats_url))
        with ClusterClient(self.cluster.rest_url) as client:
            self.job_id = client.submit(self.spec)
        return self.job_id

    def replay(self) -> None:
        from examples.flights import replay
        from examples.flights.dataset import load

        self.replayed = asyncio.run(replay.replay(self.cluster.nats_url, load(), limit=self.limit))

    def replay_stubbornly(self) -> None:
        """As ``replay``, but with a pace and a hold, and though the server dies under it: every
        message is published again until it is stored, once by its id. When it holds, all that
        it has published is stored."""
        self.replayed = asyncio.run(self._publish_all())

    async def _publish_all(self) -> int:
        import nats

        from examples.flights import replay
        from examples.flights.dataset import AIRPORTS, load

        client = await nats.connect(
            self.cluster.nats_url, max_reconnect_attempts=-1, reconnect_time_wait=0.05, error_cb=_ignore
        )

        async def publish(message_id: int, subject: str, data: bytes, headers: dict[str, str]) -> None:
            while True:
                try:
                    await client.jetstream().publish(
                        subject, data, timeout=5, headers={**headers, "Nats-Msg-Id": str(message_id)}
                    )
                    return
                except (nats.errors.Error, OSError):
                    await asyncio.sleep(0.05)

        started, flights, number = time.monotonic(), 0, 0
        for number, message in enumerate(replay.messages(load(), self.limit)):
            await publish(number, message.subject, message.data, {})
            flights += message.flights
            if self.hold_at is not None and flights >= self.hold_at:
                await asyncio.to_thread(self.go.wait)
            if self.rate:
                await asyncio.sleep(max(0.0, flights / self.rate - (time.monotonic() - started)))
        for prefix in replay.STREAMS.values():
            for airport in AIRPORTS:
                number += 1
                await publish(number, f"{prefix}.{airport}", b"", replay.END_HEADER)
        await client.close()
        return flights

    def wait(self) -> dict[str, Any]:
        with ClusterClient(self.cluster.rest_url) as client:

            def over() -> dict[str, Any] | None:
                job = client.job(self.job_id)
                return job if job["state"] in ("FINISHED", "FAILED", "CANCELED") else None

            end = f"the end of job {self.job_id}"
            job = until_true(over, end, lambda: story_of(client, self.job_id), every_s=0.2)
            client.raise_if_failed(self.job_id, job)
        assert job["state"] == "FINISHED"
        return job

    def board(self) -> pa.Table:
        table = ds.dataset(self.out / "board", format="parquet").to_table()
        return table.sort_by([("origin", "ascending"), ("window_start", "ascending")])


@pytest.fixture
def flights_run(tmp_path: Path) -> Iterator[Callable[..., FlightsRun]]:
    from examples.flights.demo import job_sql

    made: list[FlightsRun] = []

    def make(
        cluster: EmbeddedCluster,
        *,
        delay: str = "'22' HOUR",
        name: str = "out",
        config: dict[str, str] | None = None,
        **options: Any,
    ) -> FlightsRun:
        out = tmp_path / name
        out.mkdir()
        settings = {
            "parallelism.default": "2",
            "execution.checkpointing.interval": "500 ms",
            **(config or {}),
        }
        made.append(FlightsRun(cluster, out, {"sql": job_sql(out, delay), "config": settings}, **options))
        return made[-1]

    yield make
    for run in made:
        run.go.set()  # a replay that a failed test left waiting would keep pytest from ending
