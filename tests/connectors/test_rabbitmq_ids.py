"""Ids of messages that a RabbitMQ may give out again, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.connectors.base import Split, TableInfo
from penstock.connectors.rabbitmq.source import RabbitMqReader, _Link
from penstock.connectors.unconfirmed import ACKNOWLEDGED_KEPT_MS, Unconfirmed
from penstock.types import Schema
from penstock.types import logical as t


class Channel:
    """Takes acknowledgements."""

    async def basic_ack(self, tag: int, *, multiple: bool) -> None: ...

    async def tx_commit(self) -> None: ...


async def test_ids_are_not_forgotten_while_the_server_is_away() -> None:
    """Found by a server that was killed and took longer to start than ids were remembered: it had lost its last
    acknowledgements, and 391 messages were read twice."""
    options = {
        "connector": "rabbitmq",
        "url": "amqp://x",
        "queue": "q",
        "format": "raw",
        "use-message-id": "true",
    }
    reader = RabbitMqReader(TableInfo(Schema.of(("body", t.VarCharType())), options))
    now = [0]
    reader.ctx: Any = SimpleNamespace(now_ms=lambda: now[0])  # type: ignore[misc]
    link = reader._links["q"] = _Link(Unconfirmed(None, 1_000, 0), channel=Channel())
    split = Split("q", {"queue": "q"})

    async def read(tag: int, id: str) -> None:
        assert link.unconfirmed.arrive(tag, id)
        link.unconfirmed.poll([id])
        position = link.unconfirmed.position()
        reader.on_checkpoint_complete(tag, [Split(split.id, split.payload, position)])
        assert link.acknowledging is not None
        await link.acknowledging

    await read(1, "a")
    link.channel = None
    now[0] = 10 * ACKNOWLEDGED_KEPT_MS
    reader.on_checkpoint_complete(2, [Split(split.id, split.payload, link.unconfirmed.position())])
    assert link.unconfirmed.position()["ids"] == ["a"]
    # It is back, and gives "a" out again: the reader knows it.
    link.unconfirmed.begin(now[0])
    link.channel = Channel()
    assert not link.unconfirmed.arrive(1, "a")
    # When the server answers long after it has acknowledged "a", that is sure.
    await read(2, "b")
    now[0] += 2 * ACKNOWLEDGED_KEPT_MS
    await read(3, "c")
    assert link.unconfirmed.position()["ids"] == ["c"]
