"""The events of jobs over REST: from their master, from the archive, live, and resumed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from penstock.errors import SpecError
from penstock.messages import layout
from penstock.messages.cluster import JobDetails, Refused
from penstock.messages.job_events import JobMasterChanged, JobStatusChanged, RequestJobEvents, after
from penstock.messages.states import JobStatus
from penstock_services.dispatcher import event_feed
from penstock_services.dispatcher.event_feed import EventFeed
from penstock_services.dispatcher.logged import UnknownJobError

JOB = "a" * 32
OTHER = "b" * 32


def changed(
    sequence: int, status: JobStatus = JobStatus.RUNNING, job: str = JOB, epoch: int = 2
) -> JobStatusChanged:
    return JobStatusChanged(
        job_id=job, epoch=epoch, sequence=sequence, timestamp_ms=7, status=status, previous=JobStatus.CREATED, attempt=1
    )  # fmt: skip


def details(job: str = JOB, status: JobStatus = JobStatus.RUNNING, **more: Any) -> JobDetails:
    return JobDetails(job_id=job, name="n", status=status, attempt=1, epoch=2, start_ms=1, **more)


class Reader:
    """Reads a stream, event by event."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def next(self) -> dict[str, Any]:
        """The next event, as its fields; comments and ``retry`` are left out."""
        while True:
            text = (await asyncio.wait_for(anext(self._stream), 60)).decode()
            fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
            if "event" in fields:
                return {**fields, "data": json.loads(fields["data"])}

    async def ids(self, count: int) -> list[str]:
        return [(await self.next()).get("id", "gap").partition(":")[2] or "gap" for _ in range(count)]


@pytest.fixture
async def feed(front):
    made = EventFeed(front.bus.transport(), front.subjects, front.directory)
    await made.start()
    return made


async def publish(front: Any, *events: Any, to: str | None = None) -> None:
    for event in events:
        subject = front.subjects.job_events(to or event.job_id)
        await front.bus.transport().publish(subject, msgspec.json.encode(event))


async def master(front: Any, known: list[Any]) -> None:
    def answer(message: Any) -> Any:
        if isinstance(message, RequestJobEvents):
            return after(tuple(known), message.epoch, message.sequence)
        return details()

    await front.master(JOB, answer)


async def test_one_job_from_its_master_and_then_live(front, feed):
    known = [changed(1), changed(2)]
    await master(front, known)
    reader = Reader(await feed.of_job(JOB, ""))
    first = await reader.next()
    assert first["event"] == "job-status-changed"
    assert first["id"] == f"{JOB}:2-1"
    assert first["data"]["status"] == "RUNNING"
    assert await reader.ids(1) == ["2-2"]
    # A repetition, another job's, then the next; 5 comes where 4 was lost: the master knows it.
    known += [changed(3), changed(4), changed(5)]
    await publish(front, changed(2), changed(9, job=OTHER), changed(3), changed(5))
    assert await reader.ids(3) == ["2-3", "2-4", "2-5"]
    await publish(front, changed(6, JobStatus.FINISHED))
    assert await reader.ids(1) == ["2-6"]
    with pytest.raises(StopAsyncIteration):
        await reader.next()


async def test_a_reader_goes_on_after_its_last_event(front, feed):
    await master(front, [changed(n) for n in range(1, 6)])
    assert await Reader(await feed.of_job(JOB, f"{JOB}:2-3")).ids(2) == ["2-4", "2-5"]
    # Of an earlier master, whose events nobody remembers.
    reader = Reader(await feed.of_job(JOB, f"{JOB}:1-9"))
    assert (await reader.next())["event"] == "gap"
    assert await reader.ids(1) == ["2-1"]


async def test_a_new_master_begins_at_one(front, feed):
    known: list[Any] = [changed(1)]
    await master(front, known)
    reader = Reader(await feed.of_job(JOB, ""))
    assert await reader.ids(1) == ["2-1"]
    leads = JobMasterChanged(job_id=JOB, epoch=5, sequence=1, timestamp_ms=8, jobmanager_id="jm2")
    await publish(front, leads)
    assert (await reader.next())["event"] == "job-master-changed"


async def test_an_ended_job_is_told_from_its_archive_once(front):
    events = (changed(1), changed(2, JobStatus.FINISHED))
    archived = details(status=JobStatus.FINISHED, events=events)
    await front.store.put(layout.archive_key(JOB), msgspec.json.encode(archived))
    over = Refused(reason="the job is over")
    await front.master(JOB, lambda message: over if isinstance(message, RequestJobEvents) else archived)
    reply = await front.http.get(f"/jobs/{JOB}/events")
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert [line for line in reply.text.splitlines() if line.startswith("id: ")] == [
        f"id: {JOB}:2-1",
        f"id: {JOB}:2-2",
    ]
    again = await front.http.get(f"/v1/jobs/{JOB}/events", headers={"last-event-id": f"{JOB}:2-2"})
    assert again.status_code == 204, "a browser that gets 204 asks no more"
    some = await front.http.get(f"/jobs/{JOB}/events", params={"after": f"{JOB}:2-1"})
    assert some.text.count("id: ") == 1


async def test_all_jobs_resumed_as_far_as_the_dispatcher_remembers(front, feed, monkeypatch):
    await publish(front, changed(1), changed(1, job=OTHER), changed(2))
    reader = Reader(feed.all_jobs(""))
    assert [(await reader.next())["id"] for _ in range(3)] == [f"{JOB}:2-1", f"{OTHER}:2-1", f"{JOB}:2-2"]
    await publish(front, changed(3))
    assert await reader.ids(1) == ["2-3"]
    assert await Reader(feed.all_jobs(f"{OTHER}:2-1")).ids(2) == ["2-2", "2-3"]
    forgotten = Reader(feed.all_jobs(f"{OTHER}:1-1"))
    assert (await forgotten.next())["event"] == "gap"
    assert await forgotten.ids(1) == ["2-1"]


async def test_a_slow_reader_is_ended_and_not_waited_for(front, feed, monkeypatch):
    monkeypatch.setattr(event_feed, "WAITING", 3)
    await publish(front, changed(1))
    reader = Reader(feed.all_jobs(""))
    assert await reader.ids(1) == ["2-1"]
    await publish(front, *[changed(n) for n in range(2, 9)])
    assert await reader.ids(3) == ["2-2", "2-3", "2-4"]
    with pytest.raises(StopAsyncIteration):
        await reader.next()


async def test_messages_that_are_no_events_reach_no_reader(front, feed):
    reader = Reader(feed.all_jobs(""))
    for data in (b"[" * 40_000, b"\xff", b"{}", b""):
        await front.bus.transport().publish(front.subjects.job_events(JOB), data)
    # Its id could end the line of the stream in which it stands.
    await publish(front, changed(1, job="x\n\nevent: y"), changed(1, job=OTHER), to=JOB)
    await publish(front, changed(2))
    assert await reader.ids(1) == ["2-2"]


@pytest.mark.parametrize(
    "bad", ["x", "a:1", f"{JOB}:2-", f"{JOB}:²-1", f"{OTHER}:2-1", "9" * 5_000, f"{JOB}:2-1\n"]
)
async def test_ids_that_are_none(front, feed, bad):
    await master(front, [])
    with pytest.raises(SpecError, match="event"):
        await feed.of_job(JOB, bad)


async def test_too_many_readers_and_unknown_jobs(front, feed, monkeypatch):
    with pytest.raises(UnknownJobError):
        await feed.of_job("c" * 32, "")
    monkeypatch.setattr(event_feed, "READERS", 1)
    held = feed.all_jobs("")
    await anext(held)
    with pytest.raises(SpecError, match="too many"):
        feed.all_jobs("")
    await held.aclose()
    feed.all_jobs("")
