"""The JetStream source: reads splits in stream order and turns messages into rows."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.cancelling import end_tasks
from penstock.connectors.base import Fetched, SourceReader, Split, TableInfo
from penstock.connectors.cutting import first_rows
from penstock.connectors.nats.client import (
    BATCH_HEADER,
    END_HEADER,
    TRANSACTION_HEADER,
    JetStreamApi,
    connect,
    server_url,
)
from penstock.connectors.nats.consumer import Message, OrderedConsumer, Start
from penstock.connectors.nats.settings import METADATA, OPTIONS
from penstock.connectors.nats.subjects import has_wildcard
from penstock.connectors.placed import PlacedMessages
from penstock.errors import PenstockError
from penstock.formats import get_format
from penstock.formats.api import FormatContext
from penstock.log_events import EventLog
from penstock.types import Batch, Column, Field, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nats.aio.client import Client

    from penstock.connectors.base import SourceContext
    from penstock.formats.api import Decoder

_log = EventLog("penstock.connectors.nats")

#: Seconds between two checks whether a quiet split has passed its end or may move its position forward.
_QUIET_S = 2.0


class _State:
    """A split and its position. ``sequence``: the last message whose rows were all delivered; ``skip``: rows
    delivered of the next message. In marker mode, ``seen`` has the subjects with messages, and ``ended``
    those whose end marker has come."""

    def __init__(self, split: Split) -> None:
        position = split.position or {}
        self.split = split
        self.sequence: int | None = position.get("sequence")
        self.skip: int = position.get("skip", 0)
        self.done: bool = position.get("done", False)
        self.seen: set[str] = set(position.get("seen", ()))
        self.ended: set[str] = set(position.get("ended", ()))
        self.end: int | None = split.payload.get("end")
        self.marker: bool = split.payload.get("marker", False)
        self.consumer: OrderedConsumer | None = None
        #: Rows of the message after ``sequence`` that are not delivered yet.
        self.rest: tuple[Message, Batch] | None = None
        #: ``asked``: the engine has asked since the last message whether the split has caught up;
        #: ``confirmed``: the server has said that it has.
        self.asked = False
        self.confirmed = False

    def position(self) -> dict[str, Any]:
        out: dict[str, Any] = {"sequence": self.sequence, "skip": self.skip, "done": self.done}
        if self.marker:
            out.update(seen=sorted(self.seen), ended=sorted(self.ended))
        return out

    def start(self) -> Start:
        payload = self.split.payload
        return Start(
            self.sequence, payload.get("start"), payload.get("start_time_ms"), payload.get("created")
        )

    def passed(self, message: Message) -> None:
        self.sequence, self.skip = message.sequence, 0
        if self.end is not None and message.sequence >= self.end:
            self.done = True


class NatsReader(SourceReader):
    """Reads splits of JetStream streams through ordered consumers."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._options = OPTIONS.read(table.options)
        self._batch_messages = self._options["message.batch"]
        self._states: dict[str, _State] = {}
        self._turn: list[_State] = []
        self._event = asyncio.Event()
        #: Set when the engine asks whether a split has caught up.
        self._asked = asyncio.Event()
        self._quiet_task: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._api: JetStreamApi | None = None
        self._failure: PenstockError | None = None
        #: The task that fetches what the decoder needs before it can continue.
        self._preparing: asyncio.Task[None] | None = None

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        url = server_url(self._options, ctx.config)
        name = f"penstock source {ctx.uid} {ctx.subtask_index}"
        self._api = JetStreamApi(await connect(url, name, on_reconnect=self._reconnected), url)
        self._current: PlacedMessages[Message] = PlacedMessages(self._where)
        self._decoder = self._make_decoder(self._refused)
        self._quiet_decoder = self._make_decoder(lambda *_: None)
        fields = [Field(key, METADATA[key]) for key in ctx.metadata]
        self._schema = Schema((*ctx.schema.select(ctx.projection).fields, *fields))
        self._quiet_task = asyncio.create_task(self._watch_quiet())

    def _make_decoder(self, bad_record: Callable[[Exception, bytes | None, str], None]) -> Decoder:
        context = FormatContext(self.ctx.schema, self.ctx.projection, self._table.options, bad_record)
        return get_format(self._table.options["format"]).decoder(context)

    def _refused(self, error: Exception, raw: bytes | None, where: str) -> None:
        """Report a message that cannot be read, with what is needed to read it again."""
        found = self._current.at(where)
        if found is None or self.ctx.bad_message is None:
            self.ctx.bad_record(error, raw, where)
        else:
            self.ctx.bad_message(error, raw, where, found._asdict())

    async def replay(self, messages: Sequence[Mapping[str, Any]]) -> Batch:
        stored = [Message(**{**m, "data": base64.b64decode(m["data"])}) for m in messages]
        missing = self._decoder.prepare([m.data for m in stored]) if self._decoder.fetches else None
        if missing is not None:
            await missing
        return self._decode_singles(stored)

    async def _reconnected(self, client: Client) -> None:
        for state in self._turn:
            if state.consumer is not None:
                state.consumer.reconnected()

    def add_splits(self, splits: Sequence[Split]) -> None:
        assert self._api is not None
        for split in splits:
            state = _State(split)
            self._states[split.id] = state
            if state.end == 0 or (state.end is not None and (state.sequence or 0) >= state.end):
                state.done = True
            if not state.done:
                state.consumer = OrderedConsumer(
                    self._api, split.payload["stream"], split.payload["subject"], state.start(),
                    prefetch=self._options["scan.prefetch"],
                    prefetch_bytes=self._options["scan.prefetch-bytes"],
                    wake=self._event.set,
                )  # fmt: skip
                self._turn.append(state)
        self._event.set()

    # -- rows ---------------------------------------------------------------------------

    def poll(self) -> Fetched | None:
        self._event.clear()
        if self._failure is not None:
            raise self._failure
        if self._decoder.fetches and not self._prepared():
            return None
        for _ in range(len(self._turn)):
            state = self._turn.pop(0)
            batch = self._take(state)
            if state.done:
                self._release(state)
            else:
                self._turn.append(state)
            if batch is not None and len(batch):
                self._event.set()  # there may be more
                return Fetched(state.split.id, batch)
        return None

    def _prepared(self) -> bool:
        """Whether the received messages can be decoded. If not, starts to fetch what is missing."""
        if self._preparing is not None:
            if not self._preparing.done():
                return False
            done, self._preparing = self._preparing, None
            done.result()
        here = [s.consumer.messages for s in self._turn if s.consumer is not None]
        missing = self._decoder.prepare([m.data for messages in here for m in messages])
        if missing is not None:
            self._preparing = asyncio.create_task(missing)
            self._preparing.add_done_callback(lambda _: self._event.set())
        return missing is None

    def _release(self, state: _State) -> None:
        if state.consumer is not None:
            task = asyncio.ensure_future(state.consumer.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            state.consumer = None

    def _take(self, state: _State) -> Batch | None:
        """The available rows of one split, at most ``batch_rows``."""
        consumer = state.consumer
        assert consumer is not None
        if not consumer.messages and state.rest is None and consumer.failure is not None:
            raise consumer.failure
        singles: list[Message] = []
        parts: list[Batch] = []
        rows, limit = 0, self.ctx.batch_rows
        if state.rest is not None:
            parts.append(self._from_rest(state, limit))
            rows += len(parts[-1])
        while consumer.messages and rows < limit and not state.done and state.rest is None:
            message = consumer.messages[0]
            if state.end is not None and message.sequence > state.end:
                state.done = True
                break
            consumer.messages.popleft()
            state.asked = state.confirmed = False
            if not self._carries_rows(state, message):
                state.passed(message)
                continue
            headers = message.headers
            if self._batch_messages or (headers is not None and headers.get(BATCH_HEADER) == "true"):
                if singles:
                    parts.append(self._decode_singles(singles))
                    singles = []
                state.rest = (message, self._decode_batch(state, message))
                parts.append(self._from_rest(state, limit - rows))
                rows += len(parts[-1])
            else:
                singles.append(message)
                state.passed(message)
                rows += 1
        if singles:
            parts.append(self._decode_singles(singles))
        consumer.taken()
        if consumer.caught_up and state.rest is None:
            self._caught_up(state)
        return Batch.concat(parts) if parts else None

    def _caught_up(self, state: _State) -> None:
        # 'latest': all messages that existed at discovery have been delivered, whatever their sequences.
        if state.end is not None and self._options["scan.bounded.mode"] == "latest":
            state.done = True

    def _carries_rows(self, state: _State, message: Message) -> bool:
        """False for the end marker and for Penstock's own transaction markers."""
        headers = message.headers
        if state.marker and (headers is None or TRANSACTION_HEADER not in headers):
            state.seen.add(message.subject)
        if headers is None:
            return True
        if headers.get(END_HEADER) == "true":
            if state.marker:
                state.ended.add(message.subject)
                whole = not has_wildcard(state.split.payload["subject"])
                state.done = whole or state.ended >= state.seen
            return False
        return TRANSACTION_HEADER not in headers

    def _where(self, message: Message) -> str:
        return f"stream sequence {message.sequence}, subject '{message.subject}'"

    def _decode_singles(self, messages: list[Message]) -> Batch:
        self._current.are(messages)
        batch, of = self._decoder.decode_numbered(
            [m.data for m in messages], lambda i: self._where(messages[i])
        )
        if of is not None:
            return self._with_metadata(batch, messages, of)
        if len(batch) != len(messages):
            # Some messages were rejected. Decode each alone, to keep rows and metadata together.
            return Batch.concat([self._decode_one(m) for m in messages])
        return self._with_metadata(batch, messages, None)

    def _decode_one(self, message: Message) -> Batch:
        # The first pass has reported bad messages; here they are only skipped.
        batch = self._quiet_decoder.decode([message.data], lambda _: self._where(message))
        return self._with_metadata(batch, [message], np.zeros(len(batch), np.int64))

    def _decode_batch(self, state: _State, message: Message) -> Batch:
        self._current.are(())
        batch = self._decoder.decode_batch(message.data, self._where(message))
        batch = self._with_metadata(batch, [message], np.zeros(len(batch), np.int64))
        return batch.slice(min(state.skip, len(batch)))

    def _from_rest(self, state: _State, limit: int) -> Batch:
        assert state.rest is not None
        message, batch = state.rest
        rows = first_rows(batch, limit)
        if len(rows) == len(batch):
            state.rest = None
            state.passed(message)
        else:
            state.rest = (message, batch.slice(len(rows)))
            state.skip += len(rows)
        return rows

    def _with_metadata(self, batch: Batch, messages: list[Message], index: np.ndarray | None) -> Batch:
        """Append metadata columns and record times; ``index``: the message of each row
        (None: row i is message i)."""
        times = np.array([m.time_ns for m in messages], np.int64) // 1000
        columns = list(batch.columns)
        for key in self.ctx.metadata:
            columns.append(_metadata_column(key, messages, times))
        if index is not None:
            times = times[index]
            columns[len(batch.columns) :] = [c.take(index) for c in columns[len(batch.columns) :]]
        return Batch(self._schema, columns, kinds=batch.kinds, times=times, num_rows=len(batch))

    # -- progress -----------------------------------------------------------------------

    async def wait(self) -> None:
        await self._event.wait()

    def finished_splits(self) -> set[str]:
        return {s.split.id for s in self._states.values() if s.done}

    def caught_up(self, split_id: str) -> bool:
        """Whether the split has caught up; the engine asks this when a split was silent for its idle timeout.
        True only if the server confirmed it afterwards: the pending count in the last message may be
        outdated, and a process that was held up may not have read its sockets yet."""
        state = self._states[split_id]
        if state.done:
            return True
        if state.rest is not None or state.consumer is None or not state.consumer.caught_up:
            return False
        if not state.confirmed:
            state.asked = True
            self._asked.set()
        return state.confirmed

    def snapshot(self) -> list[Split]:
        return [msgspec.structs.replace(s.split, position=s.position()) for s in self._states.values()]

    def away(self) -> str | None:
        return None if self._api is None else self._api.away()

    def pending_records(self) -> int | None:
        consumers = [s.consumer for s in self._turn if s.consumer is not None]
        return sum(len(c.messages) + (c.pending or 0) for c in consumers)

    async def _watch_quiet(self) -> None:
        """Moves the positions of quiet splits forward to the stream's. A purge of messages of other subjects
        then counts as no loss, and the end of a bounded split is noticed."""
        while True:
            try:
                await asyncio.wait_for(self._asked.wait(), _QUIET_S)
            except TimeoutError:
                pass
            self._asked.clear()
            for state in list(self._turn):
                try:
                    await self._move_on(state)
                except PenstockError as err:
                    _log.debug("nats_position_not_read", split=state.split.id, error=err)

    async def _move_on(self, state: _State) -> None:
        consumer = state.consumer
        if consumer is None or state.done or state.rest is not None:
            return
        asked = state.asked
        passed = await consumer.last_sequence_passed()
        if passed is None or not consumer.caught_up or state.rest is not None:
            return
        # A check that began before the engine asked says nothing about the time since.
        state.confirmed = asked and state.asked
        if passed <= (state.sequence or 0):
            return
        state.sequence, state.skip = passed, 0
        if state.end is not None and passed >= state.end:
            state.done = True
            self._event.set()

    async def close(self) -> None:
        if self._quiet_task is not None:
            await end_tasks([self._quiet_task])
        if self._preparing is not None:
            await end_tasks([self._preparing])
        for state in self._turn:
            if state.consumer is not None:
                await state.consumer.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._api is not None:
            await self._api.client.close()


def _metadata_column(key: str, messages: list[Message], times: np.ndarray) -> Column:
    type_ = METADATA[key]
    match key:
        case "subject":
            return Column(type_, pa.array([m.subject for m in messages], pa.string()))
        case "sequence":
            return Column(type_, np.array([m.sequence for m in messages], np.int64))
        case "timestamp":
            return Column(type_, times - times % 1000)
    return Column.of(type_, [list((m.headers or {}).items()) for m in messages])
