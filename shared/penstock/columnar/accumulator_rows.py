"""Accumulators of a user's aggregate function that change in place although the function made them as rows."""

from __future__ import annotations

from typing import Any

from penstock.columnar.rows import Row, make_row


class AccumulatorRow(list[Any]):
    """The fields of a ``Row`` that a function made as its accumulator: ``acc[0] += 1``, ``acc["n"] += 1``, ``acc.n += 1``.

    A row never changes, because it may be a record that others read; an accumulator belongs to one function.
    """

    _names: tuple[str, ...]

    def __init__(self, names: tuple[str, ...], values: Any = ()) -> None:
        object.__setattr__(self, "_names", names)
        super().__init__(values)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self._names.index(key) if isinstance(key, str) else key)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(self._names.index(key) if isinstance(key, str) else key, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._names:
            raise AttributeError(f"the accumulator has no field {name!r}")
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._names:
            raise AttributeError(f"the accumulator has no field {name!r}")
        self[name] = value

    def __reduce__(self) -> tuple[Any, ...]:
        return AccumulatorRow, (self._names, list(self))

    def row(self) -> Row:
        """The fields as a row, which no longer changes."""
        return make_row(self._names, self)


def new_accumulator(function: Any) -> Any:
    """What ``function.create_accumulator()`` makes; a ``Row`` as one that can change."""
    made = function.create_accumulator()
    return AccumulatorRow(made._names, made) if isinstance(made, Row) else made


def result(value: Any) -> Any:
    """What an aggregate function gives; an accumulator that it gives as a whole is a row."""
    return value.row() if isinstance(value, AccumulatorRow) else value
