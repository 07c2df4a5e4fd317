"""Options and checks of the connector ``rabbitmq``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.away import need_package
from penstock.connectors.base import SinkWriter, SourceEnumerator, SourceReader, Split, TableInfo
from penstock.connectors.rabbitmq.client import check_server
from penstock.connectors.rabbitmq.settings import (
    METADATA,
    MOST_PREFETCH,
    OPTIONS,
    OWNER,
    WRITABLE_METADATA,
    by_id,
    looks,
    queues_of,
)
from penstock.connectors.simple import DeclaredConnector
from penstock.connectors.texts import KeyTemplate
from penstock.errors import ConnectorError
from penstock.formats import message_format

if TYPE_CHECKING:
    from collections.abc import Mapping


class RabbitMqConnector(DeclaredConnector):
    """The connector ``rabbitmq``: reads queues, writes to exchanges."""

    name = "rabbitmq"
    takes_format = True
    location = ("queue",)
    nested_projection = True
    metadata = METADATA
    writable_metadata = WRITABLE_METADATA

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        need_package("aiormq", "aiormq", "rabbitmq", OWNER)
        format_ = message_format(table.format, where=OWNER)
        format_.check(table.schema, table.options)
        options = OPTIONS.read(table.options)
        if role == "source":
            self._check_source(options)
            return
        format_.encoder(table.schema, table.options)
        KeyTemplate(options["routing-key"], table.schema, OWNER, "routing-key")

        async def exists(channel: Any) -> None:
            if options["exchange"]:
                await channel.exchange_declare(options["exchange"], passive=True)
            elif options["mandatory"] and options["routing-key"] and "{" not in options["routing-key"]:
                await channel.queue_declare(options["routing-key"], passive=True)

        check_server(options, exists)

    def _check_source(self, options: Mapping[str, Any]) -> None:
        if not queues_of(options):
            raise _unfit("option 'queue' names no queue", "'queue' = 'orders'", repr(options["queue"]))
        if options["use-correlation-id"] and options["use-message-id"]:
            raise _unfit("messages have one id", "'use-correlation-id' or 'use-message-id'", "both")
        if not 0 <= options["prefetch-count"] <= MOST_PREFETCH:
            raise _unfit(
                "option 'prefetch-count' is out of RabbitMQ's range",
                f"0 to {MOST_PREFETCH}",
                str(options["prefetch-count"]),
            )

        async def exists(channel: Any) -> None:
            if not options["queue.declare"]:
                for queue in queues_of(options):
                    await channel.queue_declare(queue, passive=True)

        check_server(options, exists)

    def is_bounded(self, table: TableInfo) -> bool:
        return bool(OPTIONS.read_one(table.options, "scan.bounded.mode") != "unbounded")

    def source_guarantee(self, table: TableInfo) -> str:
        if self.is_bounded(table):
            return "exactly-once while nobody takes messages out of the queue"
        exact = any(
            OPTIONS.read_one(table.options, name) for name in ("use-correlation-id", "use-message-id")
        )
        return "exactly-once" if exact else "at-least-once"

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.rabbitmq.source import LookingEnumerator
        from penstock.connectors.receiving import SplitsOnce

        options = OPTIONS.read(table.options)
        queues = queues_of(options)
        if looks(options):
            return LookingEnumerator(options, queues)
        if by_id(options) is not None:
            # What a reader remembers must meet what is given out again: a queue has one reader.
            return SplitsOnce(lambda _readers: [Split(queue, {"queue": queue}) for queue in queues])
        return SplitsOnce(
            lambda readers: [
                Split(f"{queue}#{i}", {"queue": queue}) for queue in queues for i in range(readers)
            ]
        )

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.rabbitmq.source import RabbitMqReader

        return RabbitMqReader(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.rabbitmq.sink import RabbitMqWriter

        return RabbitMqWriter(table)


def _unfit(what: str, expected: str, got: str) -> ConnectorError:
    return ConnectorError(what, expected=expected, got=got, where=OWNER, remedy="correct the table's options")
