"""``ogg-json``: records of Oracle GoldenGate, with the row before and after a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.formats.changelog.dialect import TEXT, TEXTS, Changes, Dialect, before_and_after
from penstock.formats.changelog.format import ChangelogFormat
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.batch import Batch
    from penstock.types.column import Column

_LTZ, _TIME = t.TimestampLtzType(6), t.TimestampType(6)
#: Metadata → the field of the record. Times are written without a zone and mean UTC.
_FIELDS: dict[str, tuple[str, t.LogicalType]] = {
    "table": ("table", TEXT),
    "primary-keys": ("primary_keys", TEXTS),
    "ingestion-timestamp": ("current_ts", _TIME),
    "event-timestamp": ("op_ts", _TIME),
}
_WORDS = {"I": "insert", "U": "update", "D": "delete"}


class OggDialect(Dialect):
    metadata = {"table": TEXT, "primary-keys": TEXTS, "ingestion-timestamp": _LTZ, "event-timestamp": _LTZ}

    def fields(self, row: t.RowType, metadata: Sequence[str]) -> list[t.Field]:
        fields = [t.Field("before", row), t.Field("after", row), t.Field("op_type", TEXT)]
        return fields + [t.Field(*_FIELDS[key]) for key in metadata]

    def changes(self, records: Batch, messages: Sequence[bytes]) -> Changes:
        return before_and_after(
            records,
            "op_type",
            _WORDS,
            "let GoldenGate write whole rows (supplemental logging of all columns)",
        )

    def metadata_column(self, key: str, records: Batch, messages: Sequence[bytes]) -> Column:
        return records.column(_FIELDS[key][0]).cast_type(self.metadata[key])

    def written(self, added: bool, *, skips_nulls: bool) -> tuple[bytes, bytes]:
        if added:
            return b'{"after":' if skips_nulls else b'{"before":null,"after":', b',"op_type":"I"}'
        return b'{"before":', b',"op_type":"D"}' if skips_nulls else b',"after":null,"op_type":"D"}'


class OggJsonFormat(ChangelogFormat):
    name = "ogg-json"
    dialect_of = OggDialect
