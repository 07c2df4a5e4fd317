"""Publishes rows; with quality 1 or 2 a checkpoint waits until the broker has acknowledged those before its barrier."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from penstock.connectors.buffered import BufferedWriter
from penstock.connectors.mqtt.client import ERRORS, Link, failure, where_of
from penstock.connectors.mqtt.settings import OPTIONS, OWNER
from penstock.connectors.texts import KeyTemplate
from penstock.errors import ConnectorError, RecordError
from penstock.formats import message_format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.types import Batch


class Outgoing(NamedTuple):
    """A message to publish. ``correlation``: its correlation data, if it has any."""

    topic: str
    data: bytes
    correlation: str | None


class MqttWriter(BufferedWriter):
    """Publishes at least once (quality 1 and 2) or at most once (0)."""

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        self._where = where_of(self._options)
        super().__init__(
            self._where,
            max_items=self._options["sink.buffer-flush.max-rows"],
            interval_ms=self._options["sink.buffer-flush.interval"],
        )
        self._template = KeyTemplate(self._options["topic"], table.schema, OWNER, "topic")
        format_ = message_format(table.options.get("format"), where=OWNER)
        self._encoder = format_.encoder(table.schema, table.options)
        self._link: Link | None = None

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        await self._encoder.open()

    def encode(self, batch: Batch) -> Sequence[Outgoing]:
        width = len(self.ctx.schema)
        rows = batch.select(range(width))
        told = {name: batch.columns[width + i].to_pylist() for i, name in enumerate(self.ctx.metadata)}
        none = [None] * len(batch)
        own, data = told.get("topic", none), told.get("correlation-data", none)
        out = []
        for i, (made, encoded) in enumerate(
            zip(self._template.keys(rows), self._encoder.encode(rows), strict=True)
        ):
            topic = own[i] if own[i] is not None else None if made is None else made.decode()
            if not topic or "+" in topic or "#" in topic or "\0" in topic or len(topic.encode()) > 65_535:
                error = RecordError(
                    "a row has no topic",
                    expected=f"values in the columns of {self._template.text!r}, without + and #",
                    got="NULL" if topic is None else repr(topic[:200]),
                    where=self._where,
                )
                self.ctx.bad_record(error, encoded, f"sink {self.ctx.uid}")
                continue
            out.append(Outgoing(topic, encoded, data[i]))
        return out

    async def send(self, items: Sequence[Outgoing]) -> Sequence[Outgoing]:
        try:
            link = await self._connected()
            for start in range(0, len(items), link.most):
                part = items[start : start + link.most]
                await asyncio.gather(*(self._publish(link, item) for item in part))
        except ERRORS as err:
            await self._disconnect()
            raise failure(err, self._where) from err
        if link.refusal:
            raise ConnectorError(
                "the broker refuses messages", got=link.refusal, where=self._where,
                remedy="allow the user to write to the topics, and messages of this size",
            )  # fmt: skip
        return ()

    async def _publish(self, link: Link, item: Outgoing) -> None:
        properties = None
        if item.correlation is not None:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.CorrelationData = item.correlation.encode()
        await link.publish(
            item.topic,
            item.data,
            qos=int(self._options["qos"]),
            retain=self._options["retain"],
            properties=properties,
        )

    async def _connected(self) -> Link:
        if self._link is not None and not self._link.gone.done():
            return self._link
        await self._disconnect()
        link = Link(self._options)
        await link.__aenter__()
        self._link = link
        return link

    async def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        try:
            await link.__aexit__(None, None, None)
        except ERRORS:
            # The connection had ended before; ``send`` has told why.
            return

    async def close(self) -> None:
        await super().close()
        await self._disconnect()
