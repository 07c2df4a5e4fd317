"""The events of jobs for readers of REST: what the masters publish, remembered for a while, and resumed after the last
event that a reader has seen."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from penstock.bus import RefusedError
from penstock.errors import BrokerError, SpecError
from penstock.log_events import EventLog
from penstock.messages.job_events import JobEvent, JobEvents, JobStatusChanged, decode_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from penstock.bus import Subjects
    from penstock.ports import Transport
    from penstock_services.dispatcher.directory import JobDirectory

_log = EventLog("penstock.rest")

#: So many events of all jobs are remembered.
KEPT = 10_000
#: So many may wait for one reader. A reader that is slower loses its connection, and resumes.
WAITING = 5_000
READERS = 256
#: A comment is sent when nothing has happened for so long, and the master is asked whether an event was lost.
KEEP_ALIVE_S = 15.0
_ID = re.compile(r"([A-Za-z0-9_\-]{1,64}):(\d{1,18})-(\d{1,18})", re.ASCII)
RETRY = b"retry: 2000\n\n"
_COMMENT = b": still here\n\n"


def encoded(event: JobEvent) -> bytes:
    """As a server-sent event: its name is the event's type."""
    tag = str(type(event).__struct_config__.tag)
    return f"id: {event.event_id}\nevent: {tag}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"


def gap(text: str) -> bytes:
    """The server-sent event that says that events are missing."""
    return b"event: gap\ndata: " + msgspec.json.encode({"reason": text}) + b"\n\n"


def position_of(last_event_id: str, job_id: str | None = None) -> tuple[int, int]:
    """(epoch, sequence) in the id of an event; (0, 0) without one. Raises SpecError if it is no id of an event, or that
    of another job."""
    if not last_event_id:
        return 0, 0
    found = _ID.fullmatch(last_event_id)
    if found is None or (job_id is not None and found[1] != job_id):
        raise SpecError(
            "not the id of an event" if found is None else "the id of an event of another job",
            expected=f"{job_id or 'JOB'}:EPOCH-SEQUENCE, as an event of this stream had it",
            got=repr(last_event_id[:120]),
            where="header 'Last-Event-ID', or query 'after'",
            remedy="leave it out to begin with the oldest event that is known",
        )
    return int(found[2]), int(found[3])


class EventFeed:
    """All events that one dispatcher hears."""

    def __init__(self, transport: Transport, subjects: Subjects, directory: JobDirectory) -> None:
        self._transport = transport
        self._subjects = subjects
        self._directory = directory
        self._kept: deque[JobEvent] = deque(maxlen=KEPT)
        self._readers: set[asyncio.Queue[JobEvent | None]] = set()

    async def start(self) -> None:
        """Listens from now on."""
        await self._transport.serve(self._subjects.all_job_events, self._take)

    async def _take(self, subject: str, data: bytes) -> None:
        try:
            event = decode_event(data)
            if self._subjects.job_events(event.job_id) != subject:
                raise msgspec.ValidationError("an event of another job than that of the subject")
        except (SpecError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
            _log.warning("event_not_read", subject=subject, error=str(err), got=repr(data[:200]))
            return
        self._kept.append(event)
        self._directory.changed(event.job_id)
        for reader in list(self._readers):
            if reader.qsize() < WAITING:
                reader.put_nowait(event)
            else:
                self._readers.discard(reader)
                reader.put_nowait(None)  # ends it: it resumes after what it has read

    # -- readers ------------------------------------------------------------------------

    def _room(self) -> None:
        """Raises SpecError if there are too many readers."""
        if len(self._readers) >= READERS:
            raise SpecError(
                "too many streams of events are open",
                expected=f"at most {READERS}",
                remedy="close some, or ask another dispatcher",
            )

    @contextlib.contextmanager
    def _reader(self) -> Iterator[asyncio.Queue[JobEvent | None]]:
        reader: asyncio.Queue[JobEvent | None] = asyncio.Queue()
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)

    def all_jobs(self, last_event_id: str) -> AsyncIterator[bytes]:
        """The events of all jobs after one, then those that come. Without an id: from the oldest that is known. Raises
        SpecError if there are too many readers, or the id is none."""
        position_of(last_event_id)
        self._room()
        return self._all(last_event_id)

    async def _all(self, last_event_id: str) -> AsyncIterator[bytes]:
        with self._reader() as reader:
            past = list(self._kept)
            yield RETRY
            if last_event_id:
                at = next((n for n, event in enumerate(past) if event.event_id == last_event_id), None)
                if at is None:
                    yield gap("this dispatcher does not remember the last event: events may be missing here")
                else:
                    past = past[at + 1 :]
            for event in past:
                yield encoded(event)
            while True:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        news = await reader.get()
                except TimeoutError:
                    yield _COMMENT
                    continue
                if news is None:
                    return
                yield encoded(news)

    async def of_job(self, job_id: str, last_event_id: str) -> AsyncIterator[bytes] | None:
        """The events of one job after one, then those that come, until the job has ended. None if it has ended and the
        reader knows all. Raises UnknownJobError, and SpecError as ``all_jobs``."""
        position = position_of(last_event_id, job_id)
        details = await self._directory.details(job_id)
        if not details.status.globally_terminal:
            self._room()
            return self._live(job_id, position)
        told = await self._directory.events(job_id, *position)
        return None if last_event_id and not told.events else _past(told)

    async def _live(self, job_id: str, position: tuple[int, int]) -> AsyncIterator[bytes]:
        # The reader is there before the past is asked for, so that nothing falls between.
        with self._reader() as reader:
            yield RETRY
            told = await self._known(job_id, position)
            while True:
                if told is not None and not told.complete:
                    yield gap("the job's master does not remember all events after the last one")
                for event in told.events if told is not None else ():
                    yield encoded(event)
                    position = event.position
                    if _last(event):
                        return
                told = None
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        news = await reader.get()
                except TimeoutError:
                    yield _COMMENT
                    told = await self._known(job_id, position)
                    if told is not None and not told.events:
                        told = None  # nothing is new; a new master may not know of ``position``
                    continue
                if news is None:
                    return
                if news.job_id != job_id or news.position <= position:
                    continue
                if news.position != (position[0], position[1] + 1) and news.sequence != 1:
                    told = await self._known(job_id, position)  # an event was lost on its way
                    if told is not None and told.events:
                        continue
                told = JobEvents(events=(news,))

    async def _known(self, job_id: str, position: tuple[int, int]) -> JobEvents | None:
        """What the master or the archive tells; None while nobody does."""
        try:
            return await self._directory.events(job_id, *position)
        except (BrokerError, RefusedError):
            return None


async def _past(told: JobEvents) -> AsyncIterator[bytes]:
    """The events of a job that has ended."""
    yield RETRY
    if not told.complete:
        yield gap("of the events of a job that has ended the last are kept")
    for event in told.events:
        yield encoded(event)


def _last(event: JobEvent) -> bool:
    return isinstance(event, JobStatusChanged) and event.status.globally_terminal
