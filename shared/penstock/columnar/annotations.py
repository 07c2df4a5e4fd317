"""The types that annotations declare, and the columns of classes with declared fields."""

from __future__ import annotations

import datetime as dt
import types
import typing
from decimal import Decimal
from typing import Any

from penstock.columnar.record_classes import shape_of
from penstock.errors import SpecError
from penstock.jobgraph.artifacts import classes_in
from penstock.types import logical as t

#: Python type → type of a column.
PYTHON: dict[Any, t.LogicalType] = {
    bool: t.BooleanType(),
    int: t.BigIntType(),
    float: t.DoubleType(),
    str: t.VarCharType(),
    bytes: t.VarBinaryType(),
    Decimal: t.DecimalType(38, 18),
    dt.date: t.DateType(),
    dt.time: t.TimeType(6),
    dt.timedelta: t.DayTimeIntervalType(),
}


def as_type(given: Any) -> t.LogicalType | None:
    """The type that a program means: a type, or a class with declared fields (or ``int``, ``str`` …).

    None: it is neither.

    Raises:
        SpecError: A field's annotation cannot be resolved.
    """
    if isinstance(given, t.LOGICAL_TYPES):
        return given
    if not isinstance(given, type):
        return None
    return PYTHON.get(given) or record_type(given)


def record_type(cls: type, inside: tuple[type, ...] = ()) -> t.RowType | None:
    """The row of a class's fields; None if it is no dataclass, msgspec struct, named tuple or pydantic model.

    A field whose annotation has no type of its own (a union, ``datetime``, another class, the class itself again) is
    pickled within its column.

    Raises:
        SpecError: An annotation cannot be resolved.
    """
    shape = shape_of(cls)
    if shape is None or not shape.names or cls in inside:
        return None
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except (NameError, TypeError) as err:
        raise SpecError(
            f"the fields of class '{cls.__qualname__}' have annotations that cannot be resolved",
            expected="annotations of names that the class's module has",
            got=str(err),
            remedy="define what they name at the module's level, or leave 'from __future__ import annotations' out",
        ) from err
    classes_in(cls)
    name = f"{cls.__module__}:{cls.__qualname__}"
    return t.RowType(
        tuple(
            t.Field(field, of_annotation(hints.get(field), (*inside, cls)) or t.RawType(), record=name)
            for field in shape.names
        )
    )


def of_annotation(declared: Any, inside: tuple[type, ...] = ()) -> t.LogicalType | None:
    """The type of an annotation; None if it declares none that Penstock knows.

    ``Annotated[X, Types.…()]`` declares the type given there. ``inside``: classes whose fields are being looked at.
    """
    for extra in getattr(declared, "__metadata__", ()):
        if isinstance(extra, t.LOGICAL_TYPES):
            return extra
    if typing.get_origin(declared) is typing.Annotated:
        return of_annotation(typing.get_args(declared)[0], inside)
    if isinstance(declared, type) and not isinstance(declared, types.GenericAlias):
        return PYTHON.get(declared) or record_type(declared, inside)
    arguments = [a for a in typing.get_args(declared) if a is not type(None)]
    inner = [of_annotation(a, inside) for a in arguments]
    if not inner or any(x is None for x in inner):
        return None
    origin = typing.get_origin(declared)
    if origin is tuple and Ellipsis not in arguments:
        return t.RowType(tuple(t.Field(f"f{i}", x) for i, x in enumerate(inner) if x is not None))
    if origin is list:
        return t.ArrayType(inner[0])  # type: ignore[arg-type]
    if origin is dict:
        return t.MapType(inner[0], inner[1])  # type: ignore[arg-type]
    if origin in (typing.Union, types.UnionType) and len(inner) == 1:
        return inner[0]  # Optional[X] is X, because every type is nullable
    return None
