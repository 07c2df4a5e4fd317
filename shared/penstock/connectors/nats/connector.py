"""Options and checks of the ``nats`` connector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.base import SinkWriter, SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.nats.settings import METADATA, OPTIONS
from penstock.connectors.nats.subjects import SubjectTemplate, split_filters
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import ConnectorError
from penstock.formats import message_format

if TYPE_CHECKING:
    from collections.abc import Mapping

#: mode option → (value, the option it needs)
_NEEDS = (
    ("scan.startup.mode", "sequence", "scan.startup.sequence"),
    ("scan.startup.mode", "timestamp", "scan.startup.timestamp-millis"),
    ("scan.bounded.mode", "sequence", "scan.bounded.sequence"),
)


class NatsConnector(DeclaredConnector):
    """The connector ``nats``: source and sink of JetStream subjects."""

    name = "nats"
    takes_format = True
    location = ("stream", "subject", "scan.split")
    #: ROW columns may be declared with only the fields that are read.
    nested_projection = True
    metadata = METADATA

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        options = OPTIONS.read(table.options)
        format_ = message_format(table.options.get("format"), where="connector 'nats'")
        format_.check(table.schema, table.options)
        if role == "sink":
            format_.encoder(table.schema, table.options)
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
