"""The options and metadata columns of the connector ``nats-core``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.options import Option, OptionSet, choice, integer, text
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

OWNER = "connector 'nats-core'"
OPTIONS = OptionSet(
    OWNER,
    [
        Option("url", text, None, "Servers, comma separated; default is the cluster's nats.url."),
        Option("subject", text, None, "Source: filters, ';' between. Sink: a subject or template, 'flights.{origin}'.", required=True),
        Option("scan.queue-group", text, None, "All readers subscribe as members of this group, and share the messages.", role="source"),
        Option("scan.bounded.mode", choice("unbounded", "marker"), "unbounded", "marker: a subscription ends at a message with the header Penstock-End-Of-Stream: true.", role="source"),
        Option("sink.batch-rows", integer, 1000, "Messages that are published at a time.", role="sink"),
    ],
)  # fmt: skip

METADATA: Mapping[str, Any] = {
    "subject": t.VarCharType(nullable=False),
    "headers": t.MapType(t.VarCharType(nullable=False), t.VarCharType(), nullable=False),
    "reply-to": t.VarCharType(),
}
#: A row whose ``subject`` is not NULL is published there, not to the option's.
WRITABLE_METADATA: Mapping[str, Any] = {"subject": t.VarCharType()}
