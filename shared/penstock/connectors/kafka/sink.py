"""The Kafka sink without transactions: rows are sent at once, and a checkpoint waits until they are
stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.base import SinkWriter
from penstock.connectors.kafka.client import client_properties
from penstock.connectors.kafka.producer import KafkaProducer
from penstock.connectors.staging import commit_left

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.connectors.kafka.encoding import MessageEncoder, OutMessage
    from penstock.options import OptionSet
    from penstock.types import Batch


class KafkaWriter(SinkWriter):
    """Writes messages at least once. With the guarantee ``none`` a checkpoint does not wait for
    acknowledgements, and a crash loses the messages under way.

    ``exactly_once``: makes a writer that commits what an exactly-once sink has staged before.
    """

    def __init__(
        self,
        table: TableInfo,
        option_set: OptionSet,
        encoder: MessageEncoder,
        exactly_once: Callable[[], SinkWriter],
    ) -> None:
        self._exactly_once = exactly_once
        self._options = option_set.read(table.options)
        self._properties = client_properties(table.options, option_set.owner)
        self._owner = option_set.owner
        self._encoder = encoder
        self._latest = encoder.buffer(self._options, self._send)
        self._producer: KafkaProducer | None = None
        self._waits = self._options["sink.delivery-guarantee"] != "none"

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        await commit_left(self._exactly_once(), ctx, restored)
        where = f"{self._owner}, {self._properties['bootstrap.servers']}, topic '{self._options['topic']}'"
        self._producer = KafkaProducer(self._properties, self._options["topic"], where)
        await self._encoder.open(ctx, await self._producer.partitions())

    @property
    def _out(self) -> KafkaProducer:
        assert self._producer is not None, "the writer was used before open()"
        return self._producer

    def write(self, batch: Batch) -> None:
        messages = self._encoder.messages(batch)
        if self._latest is not None:
            self._latest.add(messages)
        else:
            self._out.send(messages)

    def _send(self, messages: list[OutMessage]) -> None:
        self._out.send(messages)

    def away(self) -> str | None:
        made = self._producer
        return None if made is None or made.empty else made.trouble.reason

    def ready(self) -> bool:
        return not self._out.full

    async def wait_ready(self) -> None:
        await self._out.drain()

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        if self._latest is not None:
            self._latest.flush()

        async def stored() -> list[bytes]:
            if self._waits:
                await self._out.flush()
            else:
                self._out.check()
            return []

        return stored()

    async def finish(self) -> None:
        if self._latest is not None:
            self._latest.flush()
        await self._out.flush()

    async def close(self) -> None:
        if self._latest is not None:
            self._latest.close()
        if self._producer is not None:
            await self._producer.close()
