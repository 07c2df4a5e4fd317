"""Calls a user's scalar function, per record or per Arrow batch.

Per record the function gets Python values (None = NULL) and returns one. Per batch it gets Arrow arrays
(decimal128, timestamp[us] …) and returns an Arrow array, a NumPy array or a list of the same length.
"""

from __future__ import annotations

import inspect
import traceback
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.errors import FunctionError, InternalError, PenstockError, UnsupportedError
from penstock.functions.function_table import opened
from penstock.functions.python_results import MISFIT, allowed, first_misfit, result_of
from penstock.functions.vector import Scalar, as_column
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import PythonCall
    from penstock.functions.vector import Vector

# Types whose storage values are the Python values that users expect.
_PLAIN = (
    t.BooleanType, *t.INTEGERS, t.FloatType, t.DoubleType, *t.STRINGS, *t.BINARIES, t.RawType, t.NullType, t.VariantType,
)  # fmt: skip

_ARRAYS = (pa.Array, pa.ChunkedArray)


def python_kernel(call: PythonCall, functions: Callable[[str], Any] | None) -> Callable[..., Column]:
    """The kernel ``(args, n) -> Column`` of a user's function."""
    function = user_callable(call, functions)
    if inspect.iscoroutinefunction(function):
        raise UnsupportedError(
            f"{call.function!r} is async and cannot be called here",
            expected="a plain function; async ones in SELECT, WHERE and as table functions",
            remedy="compute it in a subquery's SELECT and use its column",
        )
    if call.per == "batch":
        return _per_batch(call, function)
    return _per_record(call, function)


def user_callable(call: PythonCall, functions: Callable[[str], Any] | None) -> Callable[..., Any]:
    """The function that a call names, or ``eval`` of its object after ``open``.

    Raises:
        FunctionError: the object is not callable and has no ``eval``, or ``open`` failed.
    """
    if functions is None:
        raise InternalError(f"no loader of user functions given for {call.function!r}")
    try:
        target = opened(functions, call.function)
    except PenstockError:
        raise
    except Exception as error:
        raise call_failed(call, error, None, "open()") from error
    function = getattr(target, "eval", None) or (target if callable(target) else None)
    if function is None:
        raise FunctionError(
            f"{call.function!r} is not a scalar function",
            expected="a callable, or an object with a method eval",
            got=type(target).__name__,
        )
    return function


def _per_record(call: PythonCall, function: Callable[..., Any]) -> Callable[..., Column]:
    def run(args: Sequence[Vector], n: int) -> Column:
        lists = [python_values(a, n) for a in args]
        out: list[Any] = []
        try:
            # extend() keeps the results before an exception, so the failing record is known.
            out.extend(map(function, *lists) if lists else (function() for _ in range(n)))
        except PenstockError:
            raise
        except Exception as error:
            record = tuple(values[len(out)] for values in lists)
            raise call_failed(call, error, record) from error
        return result_column(call, out, n, lambda row: tuple(values[row] for values in lists))

    return run


def _per_batch(call: PythonCall, function: Callable[..., Any]) -> Callable[..., Column]:
    def run(args: Sequence[Vector], n: int) -> Column:
        arrays = [as_column(a, n).to_external_arrow() for a in args]
        try:
            out = function(*arrays)
        except PenstockError:
            raise
        except Exception as error:
            raise call_failed(call, error, None, f"it was given {n} rows") from error
        return result_column(call, out, n, lambda row: tuple(array[row].as_py() for array in arrays))

    return run


def shown(record: tuple[Any, ...]) -> str:
    """Arguments for an error message: numbers as they are; only the beginning and the length of texts, so
    that no personal data reaches a log."""
    return "(" + ", ".join(map(_shown, record)) + ")"


def _shown(value: Any) -> str:
    match value:
        case None | bool() | int() | float() | Decimal():
            return repr(value)
        case str() | bytes() if len(value) > 2:
            return f"{value[:2]!r}…({len(value)})"
        case str() | bytes():
            return repr(value)
    return type(value).__name__


def python_values(vector: Vector, n: int) -> list[Any]:
    """The arguments of a function per record: Python values, None = NULL; a MAP is a dictionary."""
    if isinstance(vector, Scalar):
        return _with_dictionaries(vector.type, as_column(vector, 1).to_pylist()) * n
    if isinstance(vector.type, _PLAIN):
        return vector.storage_list()
    return _with_dictionaries(vector.type, vector.to_pylist())


def _with_dictionaries(type_: t.LogicalType, values: list[Any]) -> list[Any]:
    """``values`` with a dictionary for each MAP, which Arrow gives as a list of pairs."""
    made = _of_pairs(type_)
    return values if made is None else [None if value is None else made(value) for value in values]


def _of_pairs(type_: t.LogicalType) -> Callable[[Any], Any] | None:
    """Converts a value of ``type_`` that is not None; None if there is no MAP in the type."""
    match type_:
        case t.MapType(value=inner):
            of_value = _of_pairs(inner)
            if of_value is None:
                return dict
            return lambda pairs: {k: None if v is None else of_value(v) for k, v in pairs}
        case t.ArrayType(element=inner):
            of_element = _of_pairs(inner)
            if of_element is None:
                return None
            return lambda values: [None if v is None else of_element(v) for v in values]
        case t.RowType(fields=fields):
            own = {f.name: made for f in fields if (made := _of_pairs(f.type)) is not None}
            if not own:
                return None
            return lambda row: {k: own[k](v) if k in own and v is not None else v for k, v in row.items()}
    return None


def result_column(
    call: PythonCall, out: Any, n: int, arguments: Callable[[int], tuple[Any, ...]] | None = None
) -> Column:
    """The results of a function as a column of its declared type. ``arguments(row)``: of the call that gave
    the value, for the FunctionError if it does not fit."""
    try:
        column = result_of(call.type, out)
    except MISFIT as error:
        raise _misfit(call, error, out, n, arguments) from error
    if len(column) != n:
        raise FunctionError(
            f"{call.function!r} returned {len(column)} values for {n} rows",
            expected=f"{n} values",
            got=str(len(column)),
            where=f"function {call.function}",
        )
    return column


def _misfit(
    call: PythonCall,
    error: Exception,
    out: Any,
    n: int,
    arguments: Callable[[int], tuple[Any, ...]] | None,
) -> FunctionError:
    """The error for the first value that does not fit, with the arguments that it was computed from."""
    found = first_misfit(call.type, out) if isinstance(out, (list, np.ndarray, *_ARRAYS)) else None
    if found is None:  # all of it
        got = f"{error}" if isinstance(out, (list, np.ndarray, *_ARRAYS)) else type(out).__name__
        expected = f"{n} values of {call.type}"
    else:
        row, value = found
        # With the right number of rows, each value has its row.
        given = f" for arguments {shown(arguments(row))}" if arguments and len(out) == n else ""
        got = f"{_shown(value)} ({type(value).__name__}){given}"
        expected = allowed(call.type)
    return FunctionError(
        f"{call.function!r} returned something that is no {call.type}",
        expected=expected,
        got=got,
        where=f"function {call.function}",
        remedy="correct the function, declare another result_type, or filter such records out before it",
    )


def call_failed(
    call: PythonCall, error: Exception, record: tuple[Any, ...] | None, got: str | None = None
) -> FunctionError:
    """The error for an exception of the function: the user's traceback first, then its arguments, shortened."""
    # The first frame is ours; the user's frames begin below it.
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, frames))
    return FunctionError(
        f"{call.function!r} raised {type(error).__name__}: {error}",
        got=got if record is None else f"arguments {shown(record)}",
        where=f"function {call.function}",
        remedy="correct the function, or filter such records out before it",
        user_traceback=text,
    )
