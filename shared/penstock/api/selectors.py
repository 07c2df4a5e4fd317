"""Key selectors and timestamp assigners that only read fields become column numbers.

``lambda row: row.user``, ``lambda t: (t[0], t[2])``, ``lambda v: v`` are called once, here, with
a probe that remembers what was read. Anything else stays a Python function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import SpecError, nearest
from penstock.runtime.state.values import is_bare, row_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.types.logical import Schema


class _Field:
    """A field that the selector read; any use of it but returning it makes tracing fail."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class _Probe:
    """Stands for a record. Only reading a field works."""

    __slots__ = ("_schema",)

    def __init__(self, schema: Schema) -> None:
        object.__setattr__(self, "_schema", schema)

    _schema: Schema

    def __getattr__(self, name: str) -> _Field:
        try:
            return _Field(self._schema.index(name))
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, item: Any) -> _Field:
        if isinstance(item, str):
            return _Field(self._schema.index(item))
        return _Field(range(len(self._schema))[item])


def traced(function: Callable[..., Any], schema: Schema, *extra: Any) -> tuple[int, ...] | None:
    """Columns that the function returns as they are, or None when it computes."""
    bare = is_bare(schema)
    probe: Any = _Field(0) if bare else _Probe(schema)
    try:
        result = function(probe, *extra)
    except Exception:
        # Whatever it does with the probe, it is more than reading fields.
        return None
    if isinstance(result, _Field):
        return (result.index,)
    if isinstance(result, _Probe):
        return tuple(range(len(schema)))
    if isinstance(result, (tuple, list)) and result and all(isinstance(x, _Field) for x in result):
        return tuple(x.index for x in result)
    return None


def column_index(schema: Schema, column: str | int, what: str) -> int:
    """Position of a column given by name or number."""
    if isinstance(column, int) and not isinstance(column, bool) and -len(schema) <= column < len(schema):
        return column % len(schema)
    if isinstance(column, str) and column in schema.names:
        return schema.index(column)
    raise SpecError(
        f"{what}: no such column",
        expected="one of " + ", ".join(schema.names),
        got=repr(column),
        remedy=nearest(str(column), schema.names),
    )


class FromColumns:
    """Calls a function of a record with the record's columns (for computed keys)."""

    def __init__(self, function: Callable[[Any], Any], names: tuple[str, ...]) -> None:
        self.function = function
        self.names = names

    def __call__(self, *values: Any) -> Any:
        if self.names == ("value",):
            return self.function(values[0])
        if self.names == tuple(f"f{i}" for i in range(len(self.names))):
            return self.function(values)
        return self.function(tuple.__new__(row_class(self.names), values))
