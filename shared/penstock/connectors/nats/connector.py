"""Options and checks of the ``nats`` connector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.base import SinkWriter, SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.nats.subjects import SubjectTemplate, split_filters
from penstock.connectors.options import (
    Option,
    OptionSet,
    boolean,
    bytes_size,
    choice,
    duration_ms,
    integer,
    text,
)
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import ConnectorError
from penstock.formats import get_format
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

#: mode option → (value, the option it needs)
_NEEDS = (
    ("scan.startup.mode", "sequence", "scan.startup.sequence"),
    ("scan.startup.mode", "timestamp", "scan.startup.timestamp-millis"),
    ("scan.bounded.mode", "sequence", "scan.bounded.sequence"),
)


class NatsConnector(DeclaredConnector):
    name = "nats"
    location = ("stream", "subject", "scan.split")
    #: ROW columns may be declared with only the fields that are read.
    nested_projection = True
    metadata = METADATA

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        options = OPTIONS.read(table.options)
        get_format(table.options.get("format"), where="connector 'nats'").check(table.schema, table.options)
        if table.options["format"] == "parquet":
            raise ConnectorError(
                "format 'parquet' is for files, not for messages",
                expected="json, csv, raw or arrow",
                got="'format' = 'parquet'",
                where="connector 'nats'",
                remedy="use 'arrow' with 'message.batch' = 'true'",
            )
        for mode, value, needed in _NEEDS:
            if (options[mode] == value) != (options[needed] is not None):
                raise ConnectorError(
                    f"option '{needed}' belongs to '{mode}' = '{value}'",
                    expected="both or neither",
                    got=f"'{mode}' = '{options[mode]}', '{needed}' = {options[needed]}",
                    where="connector 'nats'",
                    remedy=f"set '{needed}'" if options[needed] is None else f"set '{mode}' = '{value}'",
                )
        if role == "source":
            self._need_one(options, "stream", "subject")
            split_filters(options["subject"] or ">")
        else:
            self._need_one(options, "subject")
            SubjectTemplate(options["subject"], table.schema)
            if options["stream.create"]:
                self._need_one(options, "stream")

    def _need_one(self, options: Mapping[str, Any], *keys: str) -> None:
        if not any(options[key] for key in keys):
            raise ConnectorError(
                f"option '{keys[0]}' is missing",
                expected=" or ".join(f"'{key}' = '…'" for key in keys),
                got="neither" if len(keys) > 1 else "no such option",
                where="connector 'nats'",
                remedy=f"add '{keys[0]}' to the table's WITH clause",
            )

    def is_bounded(self, table: TableInfo) -> bool:
        return OPTIONS.read_one(table.options, "scan.bounded.mode") != "unbounded"

    def sink_guarantee(self, table: TableInfo) -> str:
        return OPTIONS.read_one(table.options, "sink.delivery-guarantee")

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.nats.discovery import NatsEnumerator

        return NatsEnumerator(table)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.nats.source import NatsReader

        return NatsReader(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        if self.sink_guarantee(table) == "exactly-once":
            from penstock.connectors.nats.exactly_once import ExactlyOnceWriter

            return ExactlyOnceWriter(table)
        from penstock.connectors.nats.sink import AtLeastOnceWriter

        return AtLeastOnceWriter(table)
