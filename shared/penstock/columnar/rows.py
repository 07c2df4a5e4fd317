"""``Row``: what a record with several fields is to a user's function, under Flink's name.

A row is a tuple. One whose fields have names is of a class of its own for those names, made once in a process:
``row.name``, ``row[0]``, ``row["name"]``. ``penstock.api`` exports ``Row``.
"""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.errors import SpecError, SpecValueError, UnsupportedError, nearest
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Row(tuple[Any, ...]):
    """A row: ``Row(1, "a")`` by position, ``Row(id=1, name="a")`` with names.

    ``Row("id", "name")`` is also a template, as in PyFlink: ``Row("id", "name")(1, "a")`` is ``Row(id=1, name="a")``.

    Args:
        values: The fields, by position.
        named: The fields by name, instead.

    Raises:
        SpecError: Both are given.
    """

    __slots__ = ()
    #: Names of the fields; empty for a row by position.
    _names: ClassVar[tuple[str, ...]] = ()
    #: What the row does in a changelog.
    _kind: ClassVar[RowKind] = RowKind.INSERT

    def __new__(cls, *values: Any, **named: Any) -> Row:
        if values and named:
            raise SpecError("a row by position and by name at once", expected="Row(1, 2) or Row(a=1, b=2)")
        if named:
            return make_row(tuple(named), named.values())
        return tuple.__new__(Row, values)

    @staticmethod
    def of_kind(row_kind: RowKind, *args: Any, **kwargs: Any) -> Row:
        """A row that does ``row_kind`` in a changelog; ``args`` or ``kwargs`` are its fields."""
        return Row(*args, **kwargs).with_kind(row_kind)

    def get_row_kind(self) -> RowKind:
        """What the row does in a changelog; ``INSERT`` unless it was said otherwise."""
        return self._kind

    def with_kind(self, row_kind: RowKind) -> Row:
        """The same fields, with another kind."""
        return tuple.__new__(_class_of(self._names, RowKind(row_kind)), self)

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Let the row do ``row_kind`` in a changelog. Its fields do not change."""
        self.__class__ = _class_of(self._names, RowKind(row_kind))

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Give the fields other names.

        Raises:
            SpecError: There are not as many names as fields.
        """
        self.__class__ = type(self.with_names(field_names))

    def with_names(self, field_names: Sequence[str]) -> Row:
        """The same fields, with other names.

        Raises:
            SpecError: There are not as many names as fields.
        """
        if len(field_names) != len(self):
            raise SpecError(
                "names and fields of a row do not fit", expected=f"{len(self)} names", got=str(field_names)
            )
        return tuple.__new__(_class_of(tuple(field_names), self._kind), self)

    def get_fields_by_names(self, names: Sequence[str]) -> list[Any]:
        """The fields of ``names``, in that order.

        Raises:
            SpecError: The row has no field of a name.
        """
        return [self[self._position(name)] for name in names]

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Name of a field → its value. ``recursive``: rows in it become dictionaries, too.

        Raises:
            SpecError: The fields have no names.
        """
        if len(self._names) != len(self):
            raise SpecError("a row by position has no names", expected="Row(name=value, …)", got=repr(self))
        values = map(_as_dicts, self) if recursive else iter(self)
        return dict(zip(self._names, values, strict=True))

    def _position(self, name: str) -> int:
        if name not in self._names:
            raise SpecError(
                f"the row has no field '{name}'",
                expected=", ".join(self._names) or "a number: the fields have no names",
                got=repr(name),
                remedy=nearest(name, self._names),
            )
        return self._names.index(name)

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, self._position(key) if type(key) is str else key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise _unchanging("row[…] = …", "make a new Row")

    def __contains__(self, item: object) -> bool:
        return tuple.__contains__(self, item) or item in self._names

    def __call__(self, *values: Any) -> Row:
        if len(values) != len(self) or not all(isinstance(name, str) for name in self):
            raise SpecValueError(
                "values for a template of rows do not fit",
                expected=f"{len(self)} values for the names {', '.join(map(str, self))}",
                got=f"{len(values)} values",
            )
        return make_row(tuple(self), values)

    def __repr__(self) -> str:
        if self._names:
            fields = ", ".join(f"{n}={v!r}" for n, v in zip(self._names, self, strict=True))
        else:
            fields = ", ".join(map(repr, self))
        return f"Row({fields})" if self._names else f"<Row({fields})>"  # as PyFlink says one without names

    def __reduce__(self) -> tuple[Any, ...]:
        if self._kind is RowKind.INSERT:
            return make_row, (self._names, tuple(self))
        return _made, (self._names, self._kind, tuple(self))


@lru_cache(maxsize=1024)
def row_class(names: tuple[str, ...]) -> type[Row]:
    """The class of rows with these names; names that are no identifiers are reached by position or ``row["name"]``."""
    base: Any = namedtuple("Row", list(names), rename=True)  # type: ignore[misc]  # names of a schema
    # The named tuple goes first: a field may have the name of a method.
    return type("Row", (base, Row), {"__slots__": (), "_names": names, "__repr__": Row.__repr__})


@lru_cache(maxsize=1024)
def _class_of(names: tuple[str, ...], kind: RowKind) -> type[Row]:
    base = row_class(names) if names else Row
    if kind is RowKind.INSERT:
        return base
    return type("Row", (base,), {"__slots__": (), "_kind": kind})


def make_row(names: tuple[str, ...], values: Iterable[Any]) -> Row:
    """A row of ``values`` with ``names``; without names one by position."""
    return tuple.__new__(row_class(names) if names else Row, values)


@lru_cache(maxsize=1024)
def _plain_class(names: tuple[str, ...], kind: RowKind) -> type[Row]:
    def shown(row: Row) -> str:
        return f"<Row({', '.join(map(repr, row))})>"

    return type("Row", (_class_of(names, kind),), {"__slots__": (), "__repr__": shown, "__str__": shown})


def shown_plain(value: Any) -> Any:
    """``value`` with rows in it that are shown without their names, as PyFlink shows those of a table's result."""
    if isinstance(value, Row):
        return tuple.__new__(_plain_class(value._names, value._kind), map(shown_plain, value))
    if isinstance(value, list):
        return [shown_plain(v) for v in value]
    return {k: shown_plain(v) for k, v in value.items()} if isinstance(value, dict) else value


def kind_of(value: Any) -> RowKind:
    """What ``value`` does in a changelog: the kind of a ``Row``; anything else is an INSERT."""
    return value._kind if isinstance(value, Row) else RowKind.INSERT


def refuse_kind(value: Any) -> None:
    """Raise ValueError if ``value`` is a ``Row`` with another kind than INSERT: columns keep its fields alone."""
    if kind := kind_of(value):
        raise ValueError(f"a Row of kind {kind.short}, which a declared type does not keep")


def _made(names: tuple[str, ...], kind: RowKind, values: tuple[Any, ...]) -> Row:
    return tuple.__new__(_class_of(names, kind), values)


def _as_dicts(value: Any) -> Any:
    if isinstance(value, Row) and value._names:
        return value.as_dict(recursive=True)
    if isinstance(value, list):
        return [_as_dicts(v) for v in value]
    return {k: _as_dicts(v) for k, v in value.items()} if isinstance(value, dict) else value


def _unchanging(what: str, remedy: str) -> UnsupportedError:
    return UnsupportedError(f"{what}: a row does not change", expected="a new row", remedy=remedy)
