"""Options and checks of the connector ``nats-core``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.connectors.base import SinkWriter, SourceEnumerator, SourceReader, Split, TableInfo
from penstock.connectors.nats.subjects import SubjectTemplate, split_filters
from penstock.connectors.nats_core.settings import METADATA, OPTIONS, OWNER, WRITABLE_METADATA
from penstock.connectors.simple import DeclaredConnector
from penstock.formats import message_format

if TYPE_CHECKING:
    from collections.abc import Sequence


class NatsCoreConnector(DeclaredConnector):
    """The connector ``nats-core``: publish and subscribe, at most once."""

    name = "nats-core"
    takes_format = True
    location = ("subject",)
    nested_projection = True
    metadata = METADATA
    writable_metadata = WRITABLE_METADATA

    def __init__(self) -> None:
        super().__init__(OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        format_ = message_format(table.format, where=OWNER)
        format_.check(table.schema, table.options)
        if role == "source":
            split_filters(table.options["subject"])
        else:
            format_.encoder(table.schema, table.options)
            SubjectTemplate(table.options["subject"], table.schema)

    def is_bounded(self, table: TableInfo) -> bool:
        return bool(OPTIONS.read_one(table.options, "scan.bounded.mode") != "unbounded")

    def source_guarantee(self, table: TableInfo) -> str:
        return "at-most-once"

    def sink_guarantee(self, table: TableInfo) -> str:
        return "at-most-once"

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.receiving import SplitsOnce

        filters, group = split_filters(table.options["subject"]), table.options.get("scan.queue-group")

        def made(readers: int) -> Sequence[Split]:
            if group is None:
                return [Split(subject, {"subject": subject}) for subject in filters]
            return [
                Split(f"{subject}#{i}", {"subject": subject}) for subject in filters for i in range(readers)
            ]

        return SplitsOnce(made)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.nats_core.source import NatsCoreReader

        return NatsCoreReader(table)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.nats_core.sink import NatsCoreWriter

        return NatsCoreWriter(table)
