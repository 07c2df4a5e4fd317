"""Publishes rows; a checkpoint waits until the server has confirmed those before its barrier."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.buffered import BufferedWriter
from penstock.connectors.rabbitmq.client import connected, errors, failure, where_of
from penstock.connectors.rabbitmq.settings import OPTIONS, OWNER
from penstock.connectors.texts import KeyTemplate
from penstock.errors import RecordError
from penstock.formats import message_format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.types import Batch

#: Bytes of a routing key at most: AMQP's limit.
_MOST_KEY_BYTES = 255


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to publish. ``properties``: those that the row names."""

    data: bytes
    routing_key: str
    properties: dict[str, Any]


class RabbitMqWriter(BufferedWriter):
    """Publishes at least once, with publisher confirms."""

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        self._where = where_of(self._options)
        super().__init__(
            self._where,
            max_items=self._options["sink.buffer-flush.max-rows"],
            interval_ms=self._options["sink.buffer-flush.interval"],
        )
        self._template = KeyTemplate(self._options["routing-key"], table.schema, OWNER, "routing-key")
        self._encoder = message_format(table.options.get("format"), where=OWNER).encoder(
            table.schema, table.options
        )
        self._connection: Any = None
        self._channel: Any = None

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        await self._encoder.open()

    def encode(self, batch: Batch) -> Sequence[Outgoing]:
        width = len(self.ctx.schema)
        rows = batch.select(range(width))
        told = {name: batch.columns[width + i].to_pylist() for i, name in enumerate(self.ctx.metadata)}
        own = told.pop("routing-key", None)
        # Only the column is NULL: the template says the key.
        made = self._template.keys(rows)
        out = []
        for i, data in enumerate(self._encoder.encode(rows)):
            key = own[i] if own is not None and own[i] is not None else made[i]
            text = key.decode() if isinstance(key, bytes) else key
            if text is None or len(text.encode()) > _MOST_KEY_BYTES:
                self._reject(
                    batch.slice(i, 1), "a row has no routing key",
                    f"values in the columns of {self._template.text!r}, with at most {_MOST_KEY_BYTES} bytes",
                    "NULL, or more bytes",
                )  # fmt: skip
                continue
            properties = {
                name.replace("-", "_"): values[i] for name, values in told.items() if values[i] is not None
            }
            out.append(Outgoing(data, text, properties))
        return out

    def _reject(self, row: Batch, what: str, expected: str, got: str) -> None:
        error = RecordError(what, expected=expected, got=got, where=self._where)
        self.ctx.bad_record(error, repr(row.to_pylist()[0]).encode(), f"sink {self.ctx.uid}")

    async def send(self, items: Sequence[Outgoing]) -> Sequence[Outgoing]:
        try:
            channel = await self._connected()
            again: list[Outgoing] = []
            part: list[Outgoing] = []
            ids: set[str] = set()
            for item in items:
                id = item.properties.get("message_id")
                if id in ids:
                    # The client tells messages under way apart by their ids.
                    again += await self._publish(channel, part)
                    part, ids = [], set()
                part.append(item)
                if id is not None:
                    ids.add(id)
            return again + await self._publish(channel, part)
        except errors() as err:
            await self._disconnect()
            raise failure(err, self._where) from err

    async def _connected(self) -> Any:
        if self._channel is not None and not self._channel.is_closed and not self._connection.is_closed:
            return self._channel
        await self._disconnect()
        name = f"penstock-{self.ctx.uid}-{self.ctx.subtask_index}"
        self._connection = await connected(self._options, name)
        self._channel = await self._connection.channel(publisher_confirms=True, on_return_raises=True)
        return self._channel

    async def _publish(self, channel: Any, items: Sequence[Outgoing]) -> list[Outgoing]:
        """Publishes ``items``; returns those that the server did not take."""
        import aiormq.exceptions

        answers = await asyncio.gather(*(self._one(channel, item) for item in items), return_exceptions=True)
        again = []
        for item, answer in zip(items, answers, strict=True):
            if isinstance(answer, aiormq.exceptions.PublishError):
                self._unroutable(item)
            elif isinstance(answer, aiormq.exceptions.DeliveryError):
                again.append(item)
            elif isinstance(answer, BaseException):
                raise answer
        return again

    async def _one(self, channel: Any, item: Outgoing) -> Any:
        from aiormq import spec

        persistent = self._options["delivery-mode"] == "persistent"
        return await channel.basic_publish(
            item.data, exchange=self._options["exchange"], routing_key=item.routing_key,
            properties=spec.Basic.Properties(delivery_mode=2 if persistent else 1, **item.properties),
            mandatory=self._options["mandatory"],
        )  # fmt: skip

    def _unroutable(self, item: Outgoing) -> None:
        error = RecordError(
            "a message reaches no queue",
            expected="a queue that is bound to the exchange for the routing key",
            got=f"exchange {self._options['exchange']!r}, routing key {item.routing_key!r}",
            where=self._where,
            remedy="bind a queue, correct 'exchange' or 'routing-key', or drop such rows by 'mandatory' = 'false'",
        )
        self.ctx.bad_record(error, item.data, self._where)

    async def _disconnect(self) -> None:
        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            await connection.close()

    async def close(self) -> None:
        await super().close()
        await self._disconnect()
