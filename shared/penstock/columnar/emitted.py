"""Takes what a user function emits at once, because the function may change a value that it has emitted.

The results of a function become columns a batch at a time. A function that emits a list and goes on filling it, or an
instance that it keeps in its state, must not change the records that it has emitted already. Flink passes each record
on before the function goes on; a copy has the same effect.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import types
import uuid
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.columnar.python_values import is_bare
from penstock.columnar.record_classes import taken_apart
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.types.batch import Batch

#: Types of values that a program can change in place, if a list, a dictionary or an instance holds them.
_CHANGING = (t.RowType, t.ArrayType, t.MapType, t.MultisetType, t.RawType)
#: Classes whose objects never change.
_FIXED = frozenset({
    int, str, float, bool, bytes, type(None), complex, decimal.Decimal, uuid.UUID,
    datetime.date, datetime.time, datetime.datetime, datetime.timedelta,
    np.int64, np.int32, np.float64, np.float32, np.bool_,
    types.FunctionType, types.BuiltinFunctionType, type,
})  # fmt: skip
#: What a class declares that is more than its ``__dict__``, or that copies its instances in its own way.
_COPYING = frozenset({
    "__slots__", "__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__",
    "__getnewargs__", "__getnewargs_ex__",
})  # fmt: skip


def fixer(schema: t.Schema) -> Callable[[Any], Any] | None:
    """What takes an emitted record of ``schema`` at once; None if all its records are values that never change."""
    if not schema.fields:
        return None
    changing = any(isinstance(type_, _CHANGING) for type_ in schema.types)
    if is_bare(schema):
        return taken if changing else None
    if schema.fields[0].record:
        return _values_taken if changing else taken_apart
    return taken if changing else _shallow


def taken(value: Any) -> Any:
    """``value``, or a copy that no later change of ``value`` reaches. A value that cannot be copied (it holds a lock
    or a connection) is taken as it is."""
    kind: Any = type(value)
    if kind in _FIXED:
        return value
    if issubclass(kind, tuple):
        if _FIXED.issuperset(map(type, value)):
            return value
    elif kind is list:
        if _FIXED.issuperset(map(type, value)):
            return value.copy()
    elif kind is dict:
        if _FIXED.issuperset(map(type, value.values())):
            return value.copy()
    elif _is_plain(kind) and _FIXED.issuperset(map(type, vars(value).values())):
        made = object.__new__(kind)
        vars(made).update(vars(value))
        return made
    try:
        return copy.deepcopy(value)
    except TypeError:
        return value


def for_consumers(batch: Batch, consumers: int) -> Iterator[Batch]:
    """``batch`` for each of its consumers in one process, of which one may change a record in place: all but the last
    get Python objects of their own, each when it is asked for."""
    for _ in range(consumers - 1):
        yield _own(batch)
    yield batch


def _own(batch: Batch) -> Batch:
    columns = [_own_column(c) if isinstance(c.type, t.RawType) else c for c in batch.columns]
    return batch.with_columns(batch.schema, columns)


def _own_column(column: Column) -> Column:
    values = column.values
    if not isinstance(values, np.ndarray) or _FIXED.issuperset(map(type, values)):
        return column
    copied = np.empty(len(values), object)
    copied[:] = list(map(taken, values))
    return Column(column.type, copied, column.valid)


@lru_cache(maxsize=1024)
def _is_plain(kind: Any) -> bool:
    """Whether an instance is its ``__dict__``, and its class says nothing of how it is copied."""
    own = {name for cls in kind.__mro__[:-1] for name in vars(cls)}
    return kind.__new__ is object.__new__ and kind.__dictoffset__ != 0 and not own & _COPYING


def _values_taken(record: Any) -> Any:
    """The values of an instance with declared fields, each taken."""
    return tuple(map(taken, values)) if (values := taken_apart(record)) is not record else taken(record)


def _shallow(record: Any) -> Any:
    """A record whose fields never change: a copy if the record itself may."""
    kind = type(record)
    if issubclass(kind, tuple):
        return record
    return record.copy() if kind is list or kind is dict else taken_apart(record)
