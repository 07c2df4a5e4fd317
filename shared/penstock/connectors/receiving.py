"""The common part of sources that receive messages: a task for each split receives them, and the reader
decodes them in batches."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.cancelling import end_tasks
from penstock.connectors.away import Away
from penstock.connectors.base import Fetched, SourceEnumerator, SourceReader, Split
from penstock.errors import ExternalError
from penstock.formats import message_format
from penstock.formats.api import FormatContext
from penstock.types import Batch, Column, Field, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from penstock.connectors.base import SourceContext
    from penstock.types.logical import LogicalType

#: The numbers of messages and of bytes that a reader holds before it stops receiving.
MOST_MESSAGES, MOST_BYTES = 16_384, 16 << 20


@dataclass(frozen=True, slots=True)
class Arrived:
    """A received message.

    Args:
        data: Its bytes.
        where: Its place, for errors.
        told: Values of metadata columns, by key.
        time_us: Its own time, µs since the epoch, if it has one.
        token: A value that the connector needs later: an id, a delivery tag.
    """

    data: bytes
    where: str
    told: Mapping[str, Any] = field(default_factory=dict)
    time_us: int | None = None
    token: Any = None


class MessageRows:
    """Messages → a batch: the projection's columns, then metadata columns (``metadata``: key → type)."""

    def __init__(self, ctx: SourceContext, metadata: Mapping[str, LogicalType], owner: str) -> None:
        self._ctx = ctx
        self._types = [(name, metadata[name]) for name in ctx.metadata]
        fields = [Field(name, type_) for name, type_ in self._types]
        self._schema = Schema((*ctx.schema.select(ctx.projection).fields, *fields))
        format_ = message_format(ctx.options.get("format"), where=owner)

        def decoder(bad_record: Callable[[Exception, bytes | None, str], None]) -> Any:
            return format_.decoder(FormatContext(ctx.schema, ctx.projection, ctx.options, bad_record))

        self._loud, self._quiet = decoder(ctx.bad_record), decoder(lambda *_: None)

    def prepare(self, messages: Sequence[Arrived]) -> Coroutine[Any, Any, None] | None:
        """A coroutine that must be awaited before ``decode`` can take these messages; None: there is nothing
        to wait for."""
        if not self._loud.fetches:
            return None
        found: Coroutine[Any, Any, None] | None = self._loud.prepare([m.data for m in messages])
        return found

    def decode(self, messages: Sequence[Arrived]) -> Batch:
        """The rows of messages. Bad messages are handled by the table's policy."""
        whole = self._decode(messages, self._loud)
        if whole is not None:
            return whole
        # Some messages were rejected and reported. Decode each message alone, to keep rows and metadata
        # together.
        rows = [self._decode([m], self._quiet) for m in messages]
        kept = [row for row in rows if row is not None]
        return Batch.concat(kept) if kept else Batch.empty(self._schema)

    def _decode(self, messages: Sequence[Arrived], decoder: Any) -> Batch | None:
        """The rows of the messages; None if a message was rejected."""
        rows, of = decoder.decode_numbered([m.data for m in messages], lambda i: messages[i].where)
        if of is not None:
            messages = [messages[i] for i in of.tolist()]
        if len(rows) != len(messages):
            return None
        columns = [
            *rows.columns,
            *(Column.of(type_, [m.told.get(name) for m in messages]) for name, type_ in self._types),
        ]
        times = None
        if messages and all(m.time_us is not None for m in messages):
            times = np.array([m.time_us for m in messages], np.int64)
        return Batch(self._schema, columns, kinds=rows.kinds, times=times, num_rows=len(messages))


class SplitsOnce(SourceEnumerator):
    """Discovers a fixed list of splits once. ``made``: makes the splits from the number of readers."""

    def __init__(self, made: Callable[[int], Sequence[Split]]) -> None:
        self._made = made

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        return [split for split in self._made(ctx.parallelism) if split.id not in known]


@dataclass(slots=True)
class Place:
    """A split that is being received. ``position``: the position after the last polled message."""

    split: Split
    position: Any
    waiting: deque[Arrived] = field(default_factory=deque)
    #: Whether the sender has nothing more to send.
    ended: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def done(self) -> bool:
        """Whether the split was read to its end."""
        return self.ended and not self.waiting


class ReceivingReader(SourceReader):
    """Receives in a task for each split, with back-pressure, and waits for a sender that does not answer.

    A subclass receives messages (``receive``) and computes a split's position after some messages
    (``advance``).
    """

    #: Metadata key → type.
    metadata: Mapping[str, LogicalType] = {}
    most_messages = MOST_MESSAGES

    def __init__(self, owner: str, where: str) -> None:
        self._owner, self._where = owner, where
        self._places: dict[str, Place] = {}
        self._aways: dict[str, Away] = {}
        self._ready = asyncio.Event()
        self._room = asyncio.Event()
        self._held = self._held_bytes = 0
        self._failure: BaseException | None = None
        self._preparing: asyncio.Task[None] | None = None

    # -- for subclasses ---------------------------------------------------------------------

    @abstractmethod
    async def receive(self, place: Place, away: Away) -> None:
        """Connect (then ``away.answered()``) and ``await self.put(place, message)`` for each message.

        Returns at the end of the split. After an ExternalError or OSError it is called again after a pause;
        any other error fails the task.
        """

    @abstractmethod
    def advance(self, place: Place, messages: Sequence[Arrived]) -> Any:
        """The position of ``place`` after ``messages``, which were polled."""

    async def put(self, place: Place, message: Arrived) -> None:
        """Add a received message; waits while the reader holds enough."""
        self.hold(place, message)
        while self._held >= self.most_messages or self._held_bytes >= MOST_BYTES:
            self._room.clear()
            await self._room.wait()

    def hold(self, place: Place, message: Arrived) -> None:
        """Add a received message without waiting, where the sender itself sends no more than was agreed."""
        place.waiting.append(message)
        self._held += 1
        self._held_bytes += len(message.data)
        self._ready.set()

    def discard(self, place: Place) -> None:
        """Drop what waits to be polled: the sender sends it again."""
        self._held -= len(place.waiting)
        self._held_bytes -= sum(len(message.data) for message in place.waiting)
        place.waiting.clear()
        self._room.set()

    def fail(self, error: Exception) -> None:
        """The next ``poll`` raises ``error``."""
        self._failure = error
        self._ready.set()

    # -- the port ---------------------------------------------------------------------------

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._rows = MessageRows(ctx, self.metadata, self._owner)

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            place = Place(split, split.position)
            self._places[split.id] = place
            if self._is_over(place):
                place.ended = True
            else:
                place.task = asyncio.ensure_future(self._receive(place))
        self._ready.set()

    def _is_over(self, place: Place) -> bool:
        """Whether a restored split was read to its end before."""
        return isinstance(place.position, dict) and bool(place.position.get("done"))

    async def _receive(self, place: Place) -> None:
        away = self._aways[place.split.id] = Away(self._where)
        try:
            while True:
                try:
                    await self.receive(place, away)
                    break
                except (ExternalError, OSError) as err:
                    await asyncio.sleep(away.failed(err))
            place.ended = True
        except Exception as err:
            self._failure = err
        self._ready.set()

    def poll(self) -> Fetched | None:
        if self._failure is not None:
            raise self._failure
        for place in list(self._places.values()):
            while place.waiting:
                if not self._prepared(place):
                    return None
                fetched = self._take(place)
                if len(fetched.batch):
                    # The next poll begins with another split.
                    self._places[place.split.id] = self._places.pop(place.split.id)
                    return fetched
        return None

    def _take(self, place: Place) -> Fetched:
        count = min(len(place.waiting), self.ctx.batch_rows)
        messages = [place.waiting.popleft() for _ in range(count)]
        self._held -= count
        self._held_bytes -= sum(len(m.data) for m in messages)
        self._room.set()
        place.position = self.advance(place, messages)
        return Fetched(place.split.id, self._rows.decode(messages))

    def _prepared(self, place: Place) -> bool:
        """Whether the split's next messages can be decoded. If not, starts to fetch what is missing."""
        if self._preparing is not None:
            if not self._preparing.done():
                return False
            done, self._preparing = self._preparing, None
            done.result()
        missing = self._rows.prepare(list(place.waiting)[: self.ctx.batch_rows])
        if missing is not None:
            self._preparing = asyncio.ensure_future(missing)
        return missing is None

    async def wait(self) -> None:
        if self._preparing is not None:
            await asyncio.wait({self._preparing})
            return
        if self._failure is not None or any(p.waiting for p in self._places.values()):
            return
        self._ready.clear()
        await self._ready.wait()

    def finished_splits(self) -> set[str]:
        return {p.split.id for p in self._places.values() if p.done}

    def caught_up(self, split_id: str) -> bool:
        return not self._places[split_id].waiting

    def snapshot(self) -> list[Split]:
        return [msgspec.structs.replace(p.split, position=self.position_of(p)) for p in self._places.values()]

    def position_of(self, place: Place) -> Any:
        """The position of ``place`` for a checkpoint."""
        return {**(place.position or {}), "done": place.done}

    def away(self) -> str | None:
        return next((x.reason for x in self._aways.values() if x.reason), None)

    def pending_records(self) -> int | None:
        return self._held

    async def close(self) -> None:
        tasks = [p.task for p in self._places.values() if p.task is not None]
        await end_tasks(tasks if self._preparing is None else [*tasks, self._preparing])
