"""The options and metadata columns of the connector ``mqtt``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.options import Option, OptionSet, boolean, choice, duration_ms, integer, text
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

OWNER = "connector 'mqtt'"
OPTIONS = OptionSet(
    OWNER,
    [
        Option("url", text, None, "mqtt://host:1883, or mqtts://… (TLS).", required=True),
        Option("topic", text, None, "Source: topic filters, ';' between. Sink: a topic, with columns in it: 'rooms/{room}'.", required=True),
        Option("username", text, None, "To log in with; default: that of the URL."),
        Option("password", text, None, "To log in with; default: that of the URL."),
        Option("ssl.ca", text, None, "A PEM file of authorities; default: those of the system."),
        Option("ssl.certificate", text, None, "A PEM file of the client's certificate."),
        Option("ssl.key", text, None, "A PEM file of the client's key."),
        Option("qos", choice("0", "1", "2"), "1", "Quality of service. A source takes 0 or 1."),
        Option("client-id", text, None, "What the client ids of a source begin with; default: made from job and operator.", role="source"),
        Option("shared-group", text, None, "All readers subscribe as members of this group, and share the messages.", role="source"),
        Option("session-expiry", duration_ms, 86_400_000, "How long the broker keeps messages for a reader that is away.", role="source"),
        Option("receive-maximum", integer, 20_000, "Messages that a reader holds without acknowledgement, 1 to 65535.", role="source"),
        Option("use-correlation-data", boolean, False, "Messages have correlation data of their own: each is read exactly once.", role="source"),
        Option("scan.id-retention", duration_ms, 120_000, "How long the correlation data of a message is remembered whose acknowledgement may be lost.", role="source"),
        Option("retain", boolean, False, "The broker keeps the newest message of each topic for later subscribers.", role="sink"),
        Option("sink.buffer-flush.max-rows", integer, 200, "Messages under way at a time.", role="sink"),
        Option("sink.buffer-flush.interval", duration_ms, 1000, "Rows wait no longer than this under load.", role="sink"),
    ],
)  # fmt: skip

METADATA: Mapping[str, Any] = {
    "topic": t.VarCharType(nullable=False),
    "retained": t.BooleanType(nullable=False),
    "correlation-data": t.VarCharType(),
    "response-topic": t.VarCharType(),
    "user-properties": t.MapType(t.VarCharType(nullable=False), t.VarCharType(), nullable=False),
}
#: A ``topic`` that is not NULL stands instead of the option's.
WRITABLE_METADATA: Mapping[str, Any] = {"topic": t.VarCharType(), "correlation-data": t.VarCharType()}
