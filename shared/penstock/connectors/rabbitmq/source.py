"""Reads queues. Messages are acknowledged when the checkpoint that holds them is complete."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.config import CHECKPOINT_INTERVAL_MS
from penstock.connectors.base import SourceEnumerator, Split, TableInfo
from penstock.connectors.rabbitmq.client import connected, errors, failure, queue_length, where_of
from penstock.connectors.rabbitmq.settings import METADATA, OPTIONS, OWNER, by_id, looks
from penstock.connectors.receiving import Arrived, Place, ReceivingReader
from penstock.connectors.unconfirmed import Entry, Unconfirmed
from penstock.errors import BrokerError, ConnectorError, RecordError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.away import Away
    from penstock.connectors.base import SourceContext

#: Seconds between two looks whether the server has ended the consumer, as it does when a queue is deleted.
_LOOK_S = 1.0
#: Seconds that acknowledgements under way may take when the task ends.
_LAST_WORDS_S = 5.0


class LookingEnumerator(SourceEnumerator):
    """A split for each queue, which ends with the last message that the queue holds now."""

    def __init__(self, options: Mapping[str, Any], queues: Sequence[str]) -> None:
        self._options, self._queues = options, queues

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        fresh = [queue for queue in self._queues if queue not in known]
        if not fresh:
            return []
        try:
            connection = await connected(self._options, f"penstock-{ctx.uid}")
            try:
                channel = await connection.channel(publisher_confirms=False)
                return [
                    Split(queue, {"queue": queue, "end": await queue_length(channel, self._options, queue)})
                    for queue in fresh
                ]
            finally:
                await connection.close()
        except errors() as err:
            raise failure(err, where_of(self._options)) from err


@dataclass(slots=True)
class _Link:
    """What a split knows of its deliveries, and its channel while it is connected."""

    unconfirmed: Unconfirmed
    channel: Any = None
    ripe: list[Entry] = field(default_factory=list)
    acknowledging: asyncio.Task[None] | None = None


class RabbitMqReader(ReceivingReader):
    """Reads at least once, or exactly once by the ids of messages: the ids of what may be given out again are in the
    checkpoint. A bounded reader acknowledges nothing, so the queue keeps its messages."""

    metadata = METADATA

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        super().__init__(OWNER, where_of(self._options))
        self._id = by_id(self._options)
        self._looks = looks(self._options)
        self._links: dict[str, _Link] = {}

    async def open(self, ctx: SourceContext) -> None:
        if not self._looks and not CHECKPOINT_INTERVAL_MS.read(ctx.config):
            raise ConnectorError(
                "a queue is read without checkpoints",
                expected="checkpoints, after which messages are acknowledged",
                got=f"'{CHECKPOINT_INTERVAL_MS.key}' = 0",
                where=OWNER,
                remedy=f"set '{CHECKPOINT_INTERVAL_MS.key}', to 10 s for example",
            )
        await super().open(ctx)

    def add_splits(self, splits: Sequence[Split]) -> None:
        for split in splits:
            retention_ms = self._options["scan.id-retention"]
            self._links[split.id] = _Link(Unconfirmed(split.position, retention_ms, self.ctx.now_ms()))
        super().add_splits(splits)

    async def receive(self, place: Place, away: Away) -> None:
        connection = await connected(self._options, f"penstock-{self.ctx.uid}-{self.ctx.subtask_index}")
        try:
            channel = await connection.channel(publisher_confirms=False)
            if self._looks:
                await self._look(place, away, channel)
            else:
                await self._consume(place, away, channel)
        except errors() as err:
            raise failure(err, self._where) from err
        finally:
            self._links[place.split.id].channel = None
            await connection.close()

    async def _look(self, place: Place, away: Away, channel: Any) -> None:
        """Gets the messages one after another without acknowledging them; when the connection ends, the server puts them
        back where they were."""
        queue, end = place.split.payload["queue"], place.split.payload["end"]
        self.discard(place)
        behind = (place.position or {}).get("messages", 0)
        for number in range(end):
            message = await channel.basic_get(queue)
            away.answered()
            if message.delivery_tag is None:
                return
            if number >= behind:
                await self.put(place, self._arrived(queue, message))

    async def _consume(self, place: Place, away: Away, channel: Any) -> None:
        link, queue = self._links[place.split.id], place.split.payload["queue"]
        await queue_length(channel, self._options, queue)
        if self._id is not None:
            # An acknowledgement has no answer; in a transaction it has one. Until then the id is remembered.
            await channel.tx_select()
        await channel.basic_qos(prefetch_count=self._options["prefetch-count"])
        self.discard(place)
        link.ripe.clear()
        link.unconfirmed.begin(self.ctx.now_ms())
        link.channel = channel

        async def take(message: Any) -> None:
            if link.channel is not channel:
                return
            try:
                self._take_in(place, link, self._arrived(queue, message))
            except Exception as err:
                self.fail(err)

        tag = (await channel.basic_consume(queue, take)).consumer_tag
        away.answered()
        while tag in channel.consumers:
            await asyncio.wait({channel.closing, channel.connection.closing}, timeout=_LOOK_S)
            if channel.is_closed or channel.connection.is_closed:
                break
        raise BrokerError("RabbitMQ has ended the delivery", got=self._why(channel), where=self._where)

    def _why(self, channel: Any) -> str:
        for future in (channel.closing, channel.connection.closing):
            if future.done() and not future.cancelled() and future.exception() is not None:
                return str(future.exception())
        return "the queue was deleted, or its connection closed"

    def _take_in(self, place: Place, link: _Link, message: Arrived) -> None:
        tag, id = message.token
        if self._id is not None and id is None:
            self._without_id(message)
            link.unconfirmed.skip(tag)
        elif link.unconfirmed.arrive(tag, id):
            self.hold(place, message)

    def _without_id(self, message: Arrived) -> None:
        option = "use-correlation-id" if self._id == "correlation_id" else "use-message-id"
        error = RecordError(
            f"a message has no {option.removeprefix('use-').replace('-', ' ')}",
            expected=f"one of its own in each message ('{option}' = 'true')",
            got="none",
            where=message.where,
            remedy=f"let the sender set it, or remove '{option}': then messages are read at least once",
        )
        self.ctx.bad_record(error, message.data, message.where)

    def _arrived(self, queue: str, message: Any) -> Arrived:
        properties = message.header.properties
        at = properties.timestamp
        told = {
            "queue": queue,
            "exchange": message.exchange or "",
            "routing-key": message.routing_key or "",
            "message-id": properties.message_id,
            "correlation-id": properties.correlation_id,
            "reply-to": properties.reply_to,
            "redelivered": bool(message.redelivered),
            "timestamp": at,
            "headers": [
                (str(k), None if v is None else str(v)) for k, v in (properties.headers or {}).items()
            ],
        }
        id = None if self._id is None else getattr(properties, self._id)
        return Arrived(
            message.body, f"queue '{queue}', message {properties.message_id or message.delivery_tag}", told,
            None if at is None else int(at.timestamp() * 1_000_000), (message.delivery_tag, id),
        )  # fmt: skip

    def advance(self, place: Place, messages: Sequence[Arrived]) -> Any:
        if self._looks:
            return {"messages": (place.position or {}).get("messages", 0) + len(messages)}
        self._links[place.split.id].unconfirmed.poll([message.token[1] for message in messages])
        return place.position

    def position_of(self, place: Place) -> Any:
        if self._looks:
            return super().position_of(place)
        return self._links[place.split.id].unconfirmed.position()

    def caught_up(self, split_id: str) -> bool:
        place = self._places[split_id]
        return place.done if self._looks else not place.waiting

    # -- acknowledging ----------------------------------------------------------------------

    def on_checkpoint_complete(self, checkpoint_id: int, positions: Sequence[Split]) -> None:
        if self._looks:
            return
        for split in positions:
            link = self._links[split.id]
            link.ripe += link.unconfirmed.ripe(split.position)
            if link.ripe and link.channel is not None and link.acknowledging is None:
                link.acknowledging = asyncio.ensure_future(self._acknowledge(link))

    async def _acknowledge(self, link: _Link) -> None:
        try:
            while link.ripe and (channel := link.channel) is not None:
                entries, link.ripe = link.ripe, []
                # They are the first ones that are not acknowledged, in the order in which they came.
                await channel.basic_ack(entries[-1].tag, multiple=True)
                if self._id is not None:
                    await channel.tx_commit()
                if link.channel is channel:
                    link.unconfirmed.acknowledged(entries, self.ctx.now_ms())
                    # Only now, when the server has answered: the time in which it is away does not count, for it may
                    # have forgotten what it had acknowledged just before.
                    link.unconfirmed.forget(self.ctx.now_ms())
        except errors():
            # The connection is gone, which ``receive`` reports, and the messages come again.
            return
        finally:
            link.acknowledging = None

    async def close(self) -> None:
        under_way = [link.acknowledging for link in self._links.values() if link.acknowledging is not None]
        if under_way:
            await asyncio.wait(under_way, timeout=_LAST_WORDS_S)
        await super().close()
