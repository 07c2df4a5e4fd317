"""Key selectors and timestamp assigners that only read fields become column numbers.

This module calls functions such as ``lambda row: row.user``, ``lambda t: (t[0], t[2])``, ``lambda v: v``
once, with a probe that records which fields were read. A function that does anything else stays a Python
function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.columnar.python_values import from_external, is_bare, is_tuple
from penstock.columnar.record_classes import maker
from penstock.errors import SpecError, nearest
from penstock.types.logical import ArrayType, MapType, RawType, RowType

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.types.logical import Schema


class _Field:
    """A field that the selector read. Any use of the field other than returning it makes tracing fail."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class _Probe:
    """Takes the place of a record. Only reading a field works."""

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
    """The columns that the function returns unchanged, or None when the function computes."""
    if isinstance(function, FieldOfValue):
        return None
    bare = is_bare(schema)
    probe: Any = _Field(0) if bare else _Probe(schema)
    try:
        result = function(probe, *extra)
    except Exception:
        # The function did something else with the probe than reading fields.
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


_NESTED = (RowType, ArrayType, MapType)


class FromColumns:
    """Calls a function of a record with the record's columns (for computed keys)."""

    def __init__(self, function: Callable[[Any], Any], schema: Schema) -> None:
        self.function = function
        self.names = tuple(schema.names)
        self.bare = is_bare(schema)
        self.tuples = is_tuple(schema)
        self.fields = schema.fields
        self.nested = [(i, f.type) for i, f in enumerate(schema.fields) if isinstance(f.type, _NESTED)]

    def __call__(self, *values: Any) -> Any:
        if self.nested:
            given = list(values)
            for i, type_ in self.nested:
                # A nested row comes as SQL's functions get it: a dictionary.
                convert = from_external(type_)
                if convert is not None and given[i] is not None:
                    given[i] = convert(given[i])
            values = tuple(given)
        record: Any = values
        if self.bare:
            record = values[0]
        elif not self.tuples:
            record = maker(self.fields)(values)
        return self.function(record)


class CustomPartition:
    """The function that ``partition_custom`` calls for a record: it computes the key and gives the key to the
    partitioner."""

    def __init__(self, partitioner: Any, key_selector: Any) -> None:
        self.partitioner = partitioner
        self.key_selector = key_selector

    def __call__(self, record: Any, num_partitions: int) -> Any:
        key = getattr(self.key_selector, "get_key", self.key_selector)(record)
        return getattr(self.partitioner, "partition", self.partitioner)(key, num_partitions)


# -- values whose type nobody declared ------------------------------------------------------------


def is_untyped(schema: Schema) -> bool:
    return is_bare(schema) and isinstance(schema.types[0], RawType)


def field_position(value: Any, field: int | str) -> int | None:
    """The position of the field in a tuple, list or row. None: the value has no fields, and its field 0 is
    the value itself. Raises TypeError or IndexError when there is no such field."""
    if isinstance(value, (tuple, list)):
        names: tuple[str, ...] = getattr(type(value), "_names", ()) or getattr(type(value), "_fields", ())
        if isinstance(field, int) and -len(value) <= field < len(value):
            return field % len(value)
        if field in names:
            return names.index(str(field))
        known = ", ".join(names) or f"0 to {len(value) - 1}"
        raise IndexError(f"the record has no field {field!r}, but {known}")
    if field in (0, "value"):
        return None
    raise TypeError(f"the record is a {type(value).__name__}, which has no field {field!r}")


class FieldOfValue:
    """A key selector that reads fields by number. ``fields``: one number, or several for a tuple key."""

    def __init__(self, fields: tuple[int, ...]) -> None:
        self.fields = fields

    def __call__(self, value: Any) -> Any:
        found = tuple(self._one(value, field) for field in self.fields)
        return found[0] if len(found) == 1 else found

    @staticmethod
    def _one(value: Any, field: int) -> Any:
        at = field_position(value, field)
        return value if at is None else value[at]
