"""Records that are instances of a class with declared fields: dataclasses, msgspec structs, named tuples, pydantic models.

Their fields are columns. The fields of a schema or ROW name the class (``Field.record``); an instance is made of the
columns again where a user's function gets the record. A NULL in a field that is not Optional and has a default becomes
the default, so that a field that an older snapshot does not have begins with it.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from functools import lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.columnar.rows import make_row
from penstock.errors import FunctionError
from penstock.types import logical as t
from penstock.types import pickling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@dataclasses.dataclass(frozen=True)
class Shape:
    """How instances of a class are taken apart and made.

    Attributes:
        names: The fields.
        values: The fields' values of an instance, in order.
        make: An instance of values, in order.
        defaults: Number of a field that is not Optional → makes its default.
    """

    names: tuple[str, ...]
    values: Callable[[Any], Sequence[Any]]
    make: Callable[[Sequence[Any]], Any]
    defaults: dict[int, Callable[[], Any]]

    def made(self, values: Iterable[Any]) -> Any:
        """An instance of values, with defaults for NULLs where a field may not be None."""
        found = list(values)
        for i, default in self.defaults.items():
            if found[i] is None:
                found[i] = default()
        return self.make(found)


@lru_cache(maxsize=1024)
def shape_of(cls: type) -> Shape | None:
    """How instances of ``cls`` are taken apart and made; None if it declares no fields."""
    if dataclasses.is_dataclass(cls):
        return _of_dataclass(cls)
    if issubclass(cls, msgspec.Struct):
        return _of_struct(cls)
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and getattr(cls, "__annotations__", None):
        made: Any = cls
        return _shape(
            cls, cls._fields, made._make, {k: _constant(v) for k, v in made._field_defaults.items()}
        )
    if hasattr(cls, "model_fields") and hasattr(cls, "model_construct"):
        return _of_model(cls)
    return None


def _shape(
    cls: type,
    names: Sequence[str],
    make: Callable[[Sequence[Any]], Any],
    defaults: dict[str, Callable[[], Any]],
) -> Shape:
    values: Callable[[Any], Sequence[Any]] = attrgetter(*names) if names else lambda record: ()
    if len(names) == 1:
        one = attrgetter(names[0])
        values = lambda record: (one(record),)  # noqa: E731
    optional = _optional(cls)
    kept = {i: defaults[name] for i, name in enumerate(names) if name in defaults and name not in optional}
    return Shape(tuple(names), values, make, kept)


def _optional(cls: type) -> set[str]:
    """The fields that may be None; all of them if the annotations cannot be resolved."""
    try:
        hints = typing.get_type_hints(cls)
    except (NameError, TypeError):
        return set(getattr(cls, "__annotations__", ()))
    return {
        name
        for name, hint in hints.items()
        if hint in (Any, None, type(None))
        or (
            typing.get_origin(hint) in (typing.Union, types.UnionType) and type(None) in typing.get_args(hint)
        )
    }


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _of_dataclass(cls: Any) -> Shape:
    fields = dataclasses.fields(cls)
    defaults: dict[str, Callable[[], Any]] = {}
    for field in fields:
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = _constant(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory
    names = [field.name for field in fields]

    def by_name(values: Sequence[Any]) -> Any:
        return cls(**dict(zip(names, values, strict=True)))

    def without_init(values: Sequence[Any]) -> Any:
        made = cls.__new__(cls)
        for name, value in zip(names, values, strict=True):
            object.__setattr__(made, name, value)
        return made

    if not all(field.init for field in fields):
        return _shape(cls, names, without_init, defaults)
    if any(field.kw_only for field in fields):
        return _shape(cls, names, by_name, defaults)
    return _shape(cls, names, lambda values: cls(*values), defaults)


def _of_struct(cls: Any) -> Shape:
    names = cls.__struct_fields__
    defaults: dict[str, Callable[[], Any]] = {}
    for field in msgspec.structs.fields(cls):
        if field.default is not msgspec.NODEFAULT:
            defaults[field.name] = _constant(field.default)
        elif field.default_factory is not msgspec.NODEFAULT:
            defaults[field.name] = field.default_factory
    if any(p.kind is p.KEYWORD_ONLY for p in inspect.signature(cls).parameters.values()):
        return _shape(cls, names, lambda values: cls(**dict(zip(names, values, strict=True))), defaults)
    return _shape(cls, names, lambda values: cls(*values), defaults)


def _of_model(cls: Any) -> Shape:
    names = list(cls.model_fields)
    defaults: dict[str, Callable[[], Any]] = {
        name: partial(field.get_default, call_default_factory=True)
        for name, field in cls.model_fields.items()
        if not field.is_required()
    }
    # The values come from instances that were checked when they were made.
    return _shape(
        cls, names, lambda values: cls.model_construct(**dict(zip(names, values, strict=True))), defaults
    )


def maker(fields: tuple[t.Field, ...]) -> Callable[[Iterable[Any]], Any]:
    """What makes a record of the values of ``fields``: an instance of the class that they name, else a row.

    Raises:
        FunctionError: The class is unknown here, or has other fields.
    """
    names = tuple(field.name for field in fields)
    record = fields[0].record if fields else ""
    if not record or any(field.record != record for field in fields):
        return lambda values: make_row(names, values)
    module, _, qualname = record.partition(":")
    cls = pickling.job_class(module, qualname)
    shape = shape_of(cls)
    if shape is not None and shape.names != names and set(names) < set(shape.names):
        return lambda values: make_row(names, values)  # a projection of some of the fields
    if shape is None or shape.names != names:
        raise FunctionError(
            f"records of class '{qualname}' have other fields than the class",
            expected=", ".join(names),
            got="no fields" if shape is None else ", ".join(shape.names),
            remedy="declare the class as the type of the records again",
        )
    return shape.made


def plain_row(type_: t.RowType) -> t.RowType:
    """The same row without classes."""
    fields = []
    for field in type_.fields:
        inner = plain_row(field.type) if isinstance(field.type, t.RowType) else field.type
        fields.append(t.Field(field.name, inner, row=field.row))
    return t.RowType(tuple(fields), type_.nullable)


def record_names(schema: t.Schema) -> list[tuple[str, str]]:
    """(module, qualified name) of the classes whose instances records of ``schema`` are, and those in their columns."""
    found: list[tuple[str, str]] = []

    def visit(fields: Iterable[t.Field]) -> None:
        for field in fields:
            if field.record:
                module, _, qualname = field.record.partition(":")
                found.append((module, qualname))
            inner: Any = field.type
            while isinstance(inner, (t.ArrayType, t.MapType)):
                inner = inner.element if isinstance(inner, t.ArrayType) else inner.value
            if isinstance(inner, t.RowType):
                visit(inner.fields)

    visit(schema.fields)
    return list(dict.fromkeys(found))


def taken_apart(record: Any) -> Any:
    """The values of a record that is an instance of a class with fields; any other value as it is."""
    kind: Any = type(record)
    if kind in _KNOWN or issubclass(kind, (tuple, dict, list)):
        return record
    shape = shape_of(kind)
    return record if shape is None else shape.values(record)


_KNOWN = frozenset({tuple, list, dict, int, str, float, bool, bytes, type(None)})
