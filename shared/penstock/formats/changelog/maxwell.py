"""``maxwell-json``: records of Maxwell, one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.formats.changelog.data_and_old import data_and_old
from penstock.formats.changelog.dialect import LONG, TEXT, TEXTS, Changes, Dialect
from penstock.formats.changelog.format import ChangelogFormat
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.batch import Batch

#: Metadata → the field of the record.
_FIELDS: dict[str, tuple[str, t.LogicalType]] = {
    "database": ("database", TEXT),
    "table": ("table", TEXT),
    "primary-key-columns": ("primary_key_columns", TEXTS),
    "ingestion-timestamp": ("ts", LONG),
}
_WORDS = {"insert": "insert", "update": "update", "delete": "delete"}


class MaxwellDialect(Dialect):
    metadata = {
        "database": TEXT, "table": TEXT, "primary-key-columns": TEXTS, "ingestion-timestamp": t.TimestampLtzType(3),
    }  # fmt: skip

    def fields(self, row: t.RowType, metadata: Sequence[str]) -> list[t.Field]:
        fields = [t.Field("data", row), t.Field("old", row), t.Field("type", TEXT)]
        return fields + [t.Field(*_FIELDS[key]) for key in metadata]

    def changes(self, records: Batch, messages: Sequence[bytes]) -> Changes:
        return data_and_old(records, messages, _WORDS, lists=False)

    def metadata_column(self, key: str, records: Batch, messages: Sequence[bytes]) -> Column:
        column = records.column(_FIELDS[key][0])
        if key == "ingestion-timestamp":
            # Maxwell counts seconds.
            return Column(self.metadata[key], column.values * 1_000_000, column.valid)
        return column

    def written(self, added: bool, *, skips_nulls: bool) -> tuple[bytes, bytes]:
        return b'{"data":', b',"type":"insert"}' if added else b',"type":"delete"}'


class MaxwellJsonFormat(ChangelogFormat):
    name = "maxwell-json"
    dialect_of = MaxwellDialect
