"""Publishes messages, which the server does not store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.away import Away, patiently
from penstock.connectors.buffered import BufferedWriter
from penstock.connectors.nats.client import server_url
from penstock.connectors.nats.encoding import MessageEncoder
from penstock.connectors.nats_core.client import connected
from penstock.connectors.nats_core.settings import OPTIONS, OWNER
from penstock.errors import BrokerError
from penstock.redaction import without_credentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.client import Client

    from penstock.connectors.base import SourceContext, TableInfo
    from penstock.types import Batch


class NatsCoreWriter(BufferedWriter):
    """Publishes rows. A checkpoint waits until the server has taken the messages before it. A subscriber that
    does not listen at that moment never gets them, so the sink is at most once; after a restart messages may
    come twice."""

    def __init__(self, table: TableInfo) -> None:
        self._options = {**OPTIONS.read(table.options), "message.batch": False}
        self._table = table
        super().__init__(OWNER, max_items=self._options["sink.batch-rows"])
        self._client: Client | None = None

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        url = server_url(self._options, ctx.config)
        where = f"{OWNER}, {without_credentials(url)}"
        name = f"penstock-{ctx.uid}-{ctx.subtask_index}"
        self._client = await patiently(lambda: connected(url, name), Away(where), None)
        self._encoder = MessageEncoder(self._table, self._options, ctx)
        self._encoder.max_payload = self._client.max_payload
        await self._encoder.open()

    def encode(self, batch: Batch) -> Sequence[Any]:
        if "subject" not in self.ctx.metadata:
            return self._encoder.encode(batch)
        at = len(self.ctx.schema) + tuple(self.ctx.metadata).index("subject")
        rows = batch.select(range(len(self.ctx.schema)))
        return self._encoder.encode(rows, batch.columns[at].to_pylist())

    async def send(self, items: Sequence[Any]) -> Sequence[Any]:
        import nats.errors

        assert self._client is not None, "the writer was used before open()"
        try:
            for item in items:
                await self._client.publish(item.subject, item.data)
            await self._client.flush(timeout=10)
        except (nats.errors.Error, TimeoutError, OSError) as err:
            raise BrokerError(
                "NATS does not take messages", got=str(err) or type(err).__name__, where=OWNER
            ) from err
        return ()

    async def close(self) -> None:
        await super().close()
        if self._client is not None:
            await self._client.close()
