"""A connector whose parts run in helper processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.base import Connector, SourceEnumerator
from penstock.connectors.helper.lookup import HelperLookup
from penstock.connectors.helper.sink import HelperWriter
from penstock.connectors.helper.source import HelperEnumerator, HelperReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.base import SourceMode, TableInfo
    from penstock.connectors.row_changes import ChangedBy

_DECLARED = (
    "options", "metadata", "location", "overwrites", "truncates", "partitioned", "lookup_caches", "nested_projection", "writable_metadata",
    "in_process", "runs", "procedures",
)  # fmt: skip


class Hosted(Connector):
    """Behaves as ``inner``, but runs its readers and writers in helper processes. ``name``: the name by which
    a helper process finds the connector (``connectors.registry``)."""

    def __init__(self, inner: Connector, name: str) -> None:
        self.inner = inner
        self.name = inner.name
        self._found_by = name
        for declared in _DECLARED:
            setattr(self, declared, getattr(inner, declared))

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        self.inner.validate(table, role=role)

    def resolved(self, options: Mapping[str, str], *, where: str) -> Mapping[str, str]:
        return self.inner.resolved(options, where=where)

    def is_bounded(self, table: TableInfo) -> bool:
        return self.inner.is_bounded(table)

    def push_down(
        self, table: TableInfo, *, columns: Sequence[int], equals: Mapping[int, Any]
    ) -> Mapping[str, Any]:
        return self.inner.push_down(table, columns=columns, equals=equals)

    def partitions(self, table: TableInfo) -> Sequence[tuple[str, bool]]:
        return self.inner.partitions(table)

    def source_guarantee(self, table: TableInfo) -> str:
        return self.inner.source_guarantee(table)

    def metadata_of(self, table: TableInfo) -> Mapping[str, Any]:
        return self.inner.metadata_of(table)

    def unread_fields_of(self, table: TableInfo) -> bool:
        return self.inner.unread_fields_of(table)

    def nested_projection_of(self, table: TableInfo) -> bool:
        return self.inner.nested_projection_of(table)

    def source_mode(self, table: TableInfo) -> SourceMode:
        return self.inner.source_mode(table)

    def sink_guarantee(self, table: TableInfo) -> str:
        return self.inner.sink_guarantee(table)

    def sink_modes(self, table: TableInfo) -> Sequence[str]:
        return self.inner.sink_modes(table)

    def row_changes(self, table: TableInfo) -> ChangedBy | None:
        return self.inner.row_changes(table)

    def sink_shuffle(self, table: TableInfo) -> tuple[str, ...] | None:
        return self.inner.sink_shuffle(table)

    def sink_not_in_micro_batches(self, table: TableInfo) -> Sequence[str]:
        return self.inner.sink_not_in_micro_batches(table)

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        return HelperEnumerator(self._found_by, table, self.inner.enumerator(table))

    def reader(self, table: TableInfo) -> HelperReader:
        return HelperReader(self._found_by, table)

    def lookup(self, table: TableInfo) -> HelperLookup:
        return HelperLookup(self._found_by, table)

    def writer(self, table: TableInfo) -> HelperWriter:
        return HelperWriter(self._found_by, table)
