"""``canal-json``: records of Canal, which hold any number of rows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import ConnectorError
from penstock.formats.changelog.data_and_old import data_and_old
from penstock.formats.changelog.dialect import LONG, TEXT, TEXTS, Changes, Dialect, millis
from penstock.formats.changelog.format import ChangelogFormat
from penstock.options import Option, text
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.types.batch import Batch
    from penstock.types.column import Column

_LTZ = t.TimestampLtzType(3)
_TYPES = t.MapType(t.VarCharType(nullable=False), t.IntType())
#: Metadata → the field of the record.
_FIELDS: dict[str, tuple[str, t.LogicalType]] = {
    "database": ("database", TEXT),
    "table": ("table", TEXT),
    "sql-type": ("sqlType", _TYPES),
    "pk-names": ("pkNames", TEXTS),
    "ingestion-timestamp": ("ts", LONG),
    "event-timestamp": ("es", LONG),
}
_TIMES = ("ingestion-timestamp", "event-timestamp")
#: CREATE declares a table: no row changes.
_WORDS = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete", "CREATE": ""}


class CanalDialect(Dialect):
    metadata = {
        "database": TEXT, "table": TEXT, "sql-type": _TYPES, "pk-names": TEXTS,
        "ingestion-timestamp": _LTZ, "event-timestamp": _LTZ,
    }  # fmt: skip
    more_options = (
        Option("canal-json.database.include", text, None, "A regular expression: reads changes in databases whose whole names match."),
        Option("canal-json.table.include", text, None, "A regular expression: reads changes of tables whose whole names match."),
    )  # fmt: skip

    def __init__(self, options: Mapping[str, Any], where: str) -> None:
        super().__init__(options, where)
        self._filters = {
            name: self._pattern(f"{name}.include")
            for name in ("database", "table")
            if options[f"{name}.include"]
        }

    def _pattern(self, option: str) -> re.Pattern[str]:
        try:
            return re.compile(self.options[option])
        except re.error as err:
            raise ConnectorError(
                f"option 'canal-json.{option}' is no regular expression",
                expected="a regular expression",
                got=f"{self.options[option]!r}: {err}",
                where=self.where,
            ) from None

    def fields(self, row: t.RowType, metadata: Sequence[str]) -> list[t.Field]:
        rows = t.ArrayType(row)
        fields = [t.Field("data", rows), t.Field("old", rows), t.Field("type", TEXT)]
        fields += [t.Field(name, TEXT) for name in self._filters]
        named = {f.name for f in fields}
        return fields + [t.Field(*_FIELDS[key]) for key in metadata if _FIELDS[key][0] not in named]

    def opened(self, records: Batch) -> tuple[Batch, np.ndarray]:
        wanted = np.ones(len(records), np.bool_)
        for name, pattern in self._filters.items():
            values = records.column(name).values.dictionary_encode()
            matches = [
                word is not None and pattern.fullmatch(word) is not None
                for word in values.dictionary.to_pylist()
            ]
            indices = values.indices.fill_null(len(matches)).to_numpy(zero_copy_only=False)
            wanted &= np.array([*matches, False], np.bool_)[indices]
        return records, wanted

    def changes(self, records: Batch, messages: Sequence[bytes]) -> Changes:
        return data_and_old(records, messages, _WORDS, lists=True)

    def metadata_column(self, key: str, records: Batch, messages: Sequence[bytes]) -> Column:
        column = records.column(_FIELDS[key][0])
        return millis(column) if key in _TIMES else column

    def written(self, added: bool, *, skips_nulls: bool) -> tuple[bytes, bytes]:
        return b'{"data":[', b'],"type":"INSERT"}' if added else b'],"type":"DELETE"}'


class CanalJsonFormat(ChangelogFormat):
    name = "canal-json"
    dialect_of = CanalDialect
