"""The options and metadata columns of the connector ``redis``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.options import Option, OptionSet, choice, duration_ms, integer, text
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

OWNER = "connector 'redis'"
OPTIONS = OptionSet(
    OWNER,
    [
        Option("url", text, None, "redis://user:password@host:6379/0, rediss://…, unix://….", required=True),
        Option("data-type", choice("hash", "string", "list", "set", "zset", "stream"), "hash", "What lies at a key."),
        Option("key", text, None, "The key, with columns in it: 'customer:{id}'. A stream source takes several, ';' between.", required=True),
        Option("zset.score", text, None, "The column that is the score of a sorted set's members."),
        Option("scan.startup.mode", choice("earliest", "latest", "id"), "earliest", "Where reading a stream starts.", role="source"),
        Option("scan.startup.id", text, None, "For mode 'id': reads the entries behind this one, 1700000000000-0.", role="source"),
        Option("scan.bounded.mode", choice("unbounded", "latest"), "unbounded", "latest: reads up to what is there at the start.", role="source"),
        Option("sink.key.ttl", duration_ms, None, "Keys expire so long after their last write; default: never.", role="sink"),
        Option("sink.stream.max-length", integer, None, "A stream is cut to about so many entries; default: never.", role="sink"),
        Option("sink.buffer-flush.max-rows", integer, 1000, "Rows of one pipeline.", role="sink"),
        Option("sink.buffer-flush.interval", duration_ms, 1000, "Rows wait no longer than this under load.", role="sink"),
        *LOOKUP_OPTIONS,
    ],
)  # fmt: skip

METADATA: Mapping[str, Any] = {
    "key": t.VarCharType(nullable=False),
    "id": t.VarCharType(nullable=False),
    "timestamp": t.TimestampLtzType(3, nullable=False),
}
