"""The fields of an index in which values are found exactly, by the index's mapping. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import ConnectorError, RecordError
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.types import Field

_NUMBERS = ("long", "integer", "short", "byte", "unsigned_long")
_TEXTS = ("keyword", "constant_keyword", "wildcard")


@dataclass(frozen=True, slots=True)
class ExactField:
    """A field that is asked for. ``path``: its name in a query; ``most``: longer texts are not indexed (None: all are)."""

    path: str
    most: int | None = None

    def value(self, value: Any, where: str) -> Any:
        """The value as JSON holds it. RecordError for a text that the server has not indexed."""
        if isinstance(value, str) and self.most is not None and len(value) > self.most:
            raise RecordError(
                "a key is longer than what the server indexes",
                expected=f"at most {self.most} characters ('ignore_above' of field '{self.path}')",
                got=f"{len(value)} characters",
                where=where,
                remedy="raise 'ignore_above' in the index's mapping and index the documents again",
            )
        return value if isinstance(value, str | int | bool) else value.isoformat()


def check_key(fields: list[Field], owner: str) -> None:
    """ConnectorError for a column that cannot be compared exactly."""
    for field in fields:
        if not isinstance(field.type, (*t.STRINGS, *t.INTEGERS, t.BooleanType, t.DateType)):
            raise ConnectorError(
                f"column '{field.name}' cannot be looked up in documents",
                expected="a text, an integer, BOOLEAN or DATE in the join's condition",
                got=str(field.type),
                where=owner,
                remedy="join with another column, or keep the value as a text in the documents",
            )


def exact_field(field: Field, mappings: Mapping[str, Any], where: str) -> ExactField | None:
    """The field for a column of the key. None: no document has it. ConnectorError if it is not indexed as the column's type needs.

    Args:
        field: The column.
        mappings: The answer of ``GET index/_mapping``: several indices if ``index`` is an alias or a pattern.
        where: The connector and index, for the error.
    """
    found: set[ExactField] = set()
    for told in mappings.values():
        properties = told.get("mappings", {}).get("properties", {})
        if field.name in properties:
            found.add(_of(field, properties[field.name], where))
    if len(found) > 1:
        raise _unfit(field, "one mapping in all indices", f"{len(found)} different ones", where)
    return found.pop() if found else None


def _of(field: Field, told: Mapping[str, Any], where: str) -> ExactField:
    kind = told.get("type", "object")
    if isinstance(field.type, t.STRINGS):
        if kind in _TEXTS:
            return ExactField(field.name, told.get("ignore_above"))
        for name, more in told.get("fields", {}).items():
            if more.get("type") in _TEXTS and "normalizer" not in more:
                return ExactField(f"{field.name}.{name}", more.get("ignore_above"))
        raise _unfit(field, "type keyword, or text with a keyword beside it", kind, where)
    fits = (
        kind in _NUMBERS
        if isinstance(field.type, t.INTEGERS)
        else kind == ("boolean" if isinstance(field.type, t.BooleanType) else "date")
    )
    if not fits:
        raise _unfit(field, "a whole number, boolean or date, as the column is", kind, where)
    return ExactField(field.name)


def _unfit(field: Field, expected: str, got: str, where: str) -> ConnectorError:
    return ConnectorError(
        f"field '{field.name}' of the index cannot be asked for exactly",
        expected=f"{expected} (column {field.type})",
        got=got,
        where=where,
        remedy="correct the mapping of the index, or the column's type",
    )
