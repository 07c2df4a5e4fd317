"""The options and metadata columns of the ``nats`` connector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.options import Option, OptionSet, boolean, bytes_size, choice, duration_ms, integer, text
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS = OptionSet(
    "connector 'nats'",
    [
        Option("url", text, None, "Servers, comma separated; default is the cluster's nats.url."),
        Option("stream", text, None, "The JetStream stream; default is the one that captures the subject."),
        Option("subject", text, None, "Source: filters, ';' between (default all). Sink: a subject or template, 'flights.{origin}'."),
        Option("message.batch", boolean, False, "A message carries many rows (JSON lines, CSV lines, one Arrow IPC stream)."),
        Option("scan.startup.mode", choice("earliest", "latest", "sequence", "timestamp"), "earliest", "Where reading starts.", role="source"),
        Option("scan.startup.sequence", integer, None, "First stream sequence, for mode 'sequence'.", role="source"),
        Option("scan.startup.timestamp-millis", integer, None, "First message's time, for mode 'timestamp'.", role="source"),
        Option("scan.bounded.mode", choice("unbounded", "latest", "sequence", "marker"), "unbounded", "Where reading ends; 'marker': at a message with the header Penstock-End-Of-Stream: true.", role="source"),
        Option("scan.bounded.sequence", integer, None, "Last stream sequence, for mode 'sequence'.", role="source"),
        Option("scan.split", choice("auto", "subject", "filter"), "auto", "A split for each subject seen, or for each filter; auto: subjects where the end is known, else filters.", role="source"),
        Option("scan.discovery-interval", duration_ms, 1_000, "Between looks for new subjects, for 'scan.split' = 'subject'.", role="source"),
        Option("scan.prefetch", integer, 4_096, "Messages asked for ahead, a split.", role="source"),
        Option("scan.prefetch-bytes", bytes_size, 16 << 20, "Bytes asked for ahead, a split.", role="source"),
        Option("sink.delivery-guarantee", choice("at-least-once", "exactly-once"), "at-least-once", "exactly-once: rows show when their checkpoint is complete.", role="sink"),
        Option("sink.transactional-id-prefix", text, None, "Names the exactly-once sink; default is job and operator.", role="sink"),
        Option("sink.max-in-flight", integer, 4_096, "Unacknowledged messages.", role="sink"),
        Option("sink.batch-rows", integer, 1_000, "Rows a message, with 'message.batch'.", role="sink"),
        Option("stream.create", boolean, False, "Make the stream when it is not there.", role="sink"),
        Option("stream.subjects", text, None, "Its subjects, ';' between; default what the sink writes to.", role="sink"),
        Option("stream.storage", choice("file", "memory"), "file", "Its storage.", role="sink"),
        Option("stream.replicas", integer, 1, "Its replicas.", role="sink"),
    ],
    prefixes=("json.", "csv.", "arrow.", "raw."),
)  # fmt: skip

METADATA: Mapping[str, Any] = {
    "subject": t.VarCharType(nullable=False),
    "sequence": t.BigIntType(nullable=False),
    "timestamp": t.TimestampLtzType(3, nullable=False),
    "headers": t.MapType(t.VarCharType(nullable=False), t.VarCharType(), nullable=False),
}
