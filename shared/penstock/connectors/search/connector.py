"""Checks of the connectors of search servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.connectors.base import LookupSource, SinkWriter, SourceEnumerator, SourceReader, TableInfo
from penstock.connectors.search.bulk import check_server, hosts_of
from penstock.connectors.search.ids import DocumentIds
from penstock.connectors.search.index import IndexName
from penstock.connectors.search.settings import options_of
from penstock.connectors.simple import DeclaredConnector
from penstock.connectors.texts import check_scalars
from penstock.errors import ConnectorError, UnsupportedError
from penstock.formats import message_format

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Search(DeclaredConnector):
    """A sink of documents: one for each row, or the newest row of each primary key; and their lookup by fields."""

    lookup_caches = ("NONE", "PARTIAL", "FULL")
    takes_format = True
    location = ("index",)

    def __init__(self) -> None:
        super().__init__(options_of(self.name))

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        super().validate(table, role=role)
        owner = self.option_set.owner
        options = self.option_set.read(table.options)
        if (table.format or "json") != "json":
            raise ConnectorError(
                "documents are JSON",
                expected="'format' = 'json', or no 'format'",
                got=f"'format' = '{table.format}'",
                where=owner,
                remedy="remove 'format'",
            )
        format_ = message_format("json", where=owner)
        format_.check(table.schema, table.options)
        if role == "sink":
            format_.encoder(table.schema, table.options)
        hosts_of(options, owner)
        IndexName(options["index"], table.schema, owner)
        key = [f for f in table.schema.fields if f.name in table.primary_key]
        check_scalars(key, owner)
        DocumentIds(options["document-id.key-delimiter"], [f.type for f in key], owner)
        check_server(options, owner)

    def _format_prefixes(self, table: TableInfo) -> tuple[str, ...]:
        return ("json.",)

    def sink_modes(self, table: TableInfo) -> Sequence[str]:
        return ("append", "upsert")

    def sink_guarantee(self, table: TableInfo) -> str:
        options = self.option_set.read(table.options)
        waits = options["sink.flush-on-checkpoint"] and options["sink.delivery-guarantee"] != "none"
        return "at-least-once" if waits else "at-most-once"

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        raise self._only_lookups()

    def reader(self, table: TableInfo) -> SourceReader:
        raise self._only_lookups()

    def _only_lookups(self) -> UnsupportedError:
        return UnsupportedError(
            "reading all documents of an index as a source",
            expected="a lookup join (FOR SYSTEM_TIME AS OF a processing time), or a sink",
            where=self.option_set.owner,
            remedy="join with the table instead",
        )

    def lookup(self, table: TableInfo) -> LookupSource:
        from penstock.connectors.search.lookup import SearchLookup

        return SearchLookup(table, self.option_set.read(table.options), self.option_set.owner)

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.search.sink import SearchWriter

        return SearchWriter(table, self.option_set.read(table.options), self.option_set.owner)


class Elasticsearch7(_Search):
    """The connector ``elasticsearch-7``."""

    name = "elasticsearch-7"


class Elasticsearch8(_Search):
    """The connector ``elasticsearch-8``."""

    name = "elasticsearch-8"


class OpenSearch(_Search):
    """The connector ``opensearch``."""

    name = "opensearch"
