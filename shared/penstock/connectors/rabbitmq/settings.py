"""The options and metadata columns of the connector ``rabbitmq``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.options import Option, OptionSet, boolean, choice, duration_ms, integer, text
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

OWNER = "connector 'rabbitmq'"
OPTIONS = OptionSet(
    OWNER,
    [
        Option("url", text, None, "amqp://user:password@host:5672/vhost, or amqps://… (TLS).", required=True),
        Option("username", text, None, "To log in with; default: that of the URL, else guest."),
        Option("password", text, None, "To log in with; default: that of the URL, else guest."),
        Option("queue", text, None, "The queue; ';' between several.", required=True, role="source"),
        Option("queue.declare", boolean, False, "Make the queue, durable, if it does not exist.", role="source"),
        Option("use-correlation-id", boolean, False, "Messages have correlation ids of their own: each is read exactly once.", role="source"),
        Option("use-message-id", boolean, False, "Messages have message ids of their own: each is read exactly once.", role="source"),
        Option("prefetch-count", integer, 20_000, "Messages that a reader holds without acknowledgement, at most 65535; 0: no limit.", role="source"),
        Option("scan.id-retention", duration_ms, 600_000, "How long the id of a message is remembered whose acknowledgement may be lost.", role="source"),
        Option("scan.bounded.mode", choice("unbounded", "latest"), "unbounded", "latest: look at what the queue holds at the start, and take nothing out.", role="source"),
        Option("exchange", text, "", "The exchange; empty: the routing key names a queue.", role="sink"),
        Option("routing-key", text, "", "The routing key, with columns in it: 'orders.{country}'.", role="sink"),
        Option("delivery-mode", choice("persistent", "transient"), "persistent", "transient: messages are lost when the server restarts.", role="sink"),
        Option("mandatory", boolean, True, "A row whose message reaches no queue is a bad record; false: it is dropped.", role="sink"),
        Option("sink.buffer-flush.max-rows", integer, 1000, "Messages under way at a time.", role="sink"),
        Option("sink.buffer-flush.interval", duration_ms, 1000, "Rows wait no longer than this under load.", role="sink"),
    ],
)  # fmt: skip

METADATA: Mapping[str, Any] = {
    "queue": t.VarCharType(nullable=False),
    "exchange": t.VarCharType(nullable=False),
    "routing-key": t.VarCharType(nullable=False),
    "message-id": t.VarCharType(),
    "correlation-id": t.VarCharType(),
    "reply-to": t.VarCharType(),
    "redelivered": t.BooleanType(nullable=False),
    "timestamp": t.TimestampLtzType(3),
    "headers": t.MapType(t.VarCharType(nullable=False), t.VarCharType(), nullable=False),
}
#: A ``routing-key`` that is not NULL stands instead of the option's.
WRITABLE_METADATA: Mapping[str, Any] = {
    name: t.VarCharType() for name in ("routing-key", "message-id", "correlation-id", "reply-to")
}
#: RabbitMQ's own limit.
MOST_PREFETCH = 65_535


def queues_of(options: Mapping[str, Any]) -> list[str]:
    """The names of a source's queues."""
    return list(dict.fromkeys(name.strip() for name in options["queue"].split(";") if name.strip()))


def by_id(options: Mapping[str, Any]) -> str | None:
    """The property of messages that is their id; None: they have none."""
    if options["use-correlation-id"]:
        return "correlation_id"
    return "message_id" if options["use-message-id"] else None


def looks(options: Mapping[str, Any]) -> bool:
    """Whether the source takes nothing out of its queues."""
    return bool(options["scan.bounded.mode"] != "unbounded")
