"""Subscribes to subjects. Messages that are published while nobody listens are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.away import Away, patiently
from penstock.connectors.nats.client import END_HEADER, server_url
from penstock.connectors.nats_core.client import connected
from penstock.connectors.nats_core.settings import METADATA, OPTIONS, OWNER
from penstock.connectors.receiving import Arrived, Place, ReceivingReader
from penstock.redaction import without_credentials

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.client import Client

    from penstock.connectors.base import SourceContext, TableInfo


class NatsCoreReader(ReceivingReader):
    """Reads at most once. A reader that is held back for long loses messages: the client drops messages that
    exceed its buffer, and logs it (``nats_error``)."""

    metadata = METADATA

    def __init__(self, table: TableInfo) -> None:
        self._options = OPTIONS.read(table.options)
        super().__init__(OWNER, OWNER)
        self._bounded = self._options["scan.bounded.mode"] == "marker"
        self._client: Client | None = None

    async def open(self, ctx: SourceContext) -> None:
        await super().open(ctx)
        url = server_url(self._options, ctx.config)
        self._where = f"{OWNER}, {without_credentials(url)}"
        name = f"penstock-{ctx.uid}-{ctx.subtask_index}"
        self._client = await patiently(lambda: connected(url, name), Away(self._where), None)

    async def receive(self, place: Place, away: Away) -> None:
        assert self._client is not None, "the reader was used before open()"
        subject = place.split.payload["subject"]
        group = self._options["scan.queue-group"] or ""
        subscription = await self._client.subscribe(subject, queue=group)
        # After this the server has the subscription, so the reader may report that it listens.
        await self._client.flush()
        away.answered()
        try:
            async for message in subscription.messages:
                headers = message.headers or {}
                if self._bounded and headers.get(END_HEADER) == "true":
                    return
                told = {
                    "subject": message.subject,
                    "headers": list(headers.items()),
                    "reply-to": message.reply or None,
                }
                await self.put(place, Arrived(message.data, f"subject '{message.subject}'", told))
        finally:
            if not self._client.is_closed:
                await subscription.unsubscribe()

    def advance(self, place: Place, messages: Sequence[Arrived]) -> Any:
        return {"messages": (place.position or {}).get("messages", 0) + len(messages)}

    def caught_up(self, split_id: str) -> bool:
        place = self._places[split_id]
        return place.done if self._bounded else not place.waiting

    async def close(self) -> None:
        await super().close()
        if self._client is not None:
            await self._client.close()
