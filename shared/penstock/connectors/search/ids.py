"""The ids of documents: the values of a primary key as one text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.texts import written
from penstock.errors import ConnectorError
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.types.column import Column
    from penstock.types.logical import LogicalType

_WHOLE = frozenset("-0123456789")
#: All characters that values of types other than text, binary and whole numbers are written with.
_OTHERS = frozenset("-+0123456789:. TZEINaefilnrstuy")


class DocumentIds:
    """Joins the values of a key with ``delimiter``, as Flink does, so that different keys have different ids.

    If values of two or more columns could hold a character of the delimiter, a backslash stands before each such
    character, and before each backslash, of a value. Raises ConnectorError for a delimiter that cannot tell
    two keys apart.
    """

    def __init__(self, delimiter: str, types: Sequence[LogicalType], owner: str) -> None:
        self._delimiter = delimiter
        marks = frozenset(delimiter)
        many = len(types) > 1
        if many and (not delimiter or "\\" in delimiter):
            raise ConnectorError(
                "the delimiter of document ids cannot tell two keys apart",
                expected="at least one character, and no backslash, between the values of several key columns",
                got=f"'document-id.key-delimiter' = {delimiter!r}",
                where=owner,
                remedy="remove the option, for '_'",
            )
        self._escaped = {ord(c): f"\\{c}" for c in (*marks, "\\")}
        self._escapes = many and sum(_may_hold(x, marks) for x in types) > 1

    def of(self, columns: Sequence[Column]) -> list[str | None]:
        """The id of each row; None if a value is NULL."""
        rows = ([None if v is None else str(v) for v in row] for row in written(columns))
        if not self._escapes:
            return [None if None in row else self._delimiter.join(row) for row in rows]  # type: ignore[arg-type]
        return [
            None if None in row else self._delimiter.join(v.translate(self._escaped) for v in row)  # type: ignore[union-attr]
            for row in rows
        ]


def _may_hold(type_: LogicalType, marks: frozenset[str]) -> bool:
    """Whether a value of the type, as text, may hold one of the characters."""
    if isinstance(type_, (*t.STRINGS, *t.BINARIES)):
        return True
    return bool(marks & (_WHOLE if isinstance(type_, t.INTEGERS) else _OTHERS))
