"""Calling a user's scalar function, per record or per Arrow batch.

Per record it gets Python values (None = NULL) and returns one. Per batch it gets Arrow
arrays (decimal128, timestamp[us] …) and returns one Arrow array, NumPy array or list of the
same length.
"""

from __future__ import annotations

import inspect
import traceback
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.errors import FunctionError, InternalError, PenstockError, UnsupportedError
from penstock.functions.vector import Scalar, as_column
from penstock.types import logical as t
from penstock.types.column import Column, external_arrow_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.expr import PythonCall
    from penstock.functions.vector import Vector

# Types whose storage values are the Python values that a person expects.
_PLAIN = (
    t.BooleanType, *t.INTEGERS, t.FloatType, t.DoubleType, *t.STRINGS, *t.BINARIES, t.RawType, t.NullType,
)  # fmt: skip


def python_kernel(call: PythonCall, functions: Callable[[str], Any] | None) -> Callable[..., Column]:
    """The kernel ``(args, n) -> Column`` of a user's function."""
    if functions is None:
        raise InternalError(f"no loader of user functions given for {call.function!r}")
    function = functions(call.function)
    function = function if callable(function) else getattr(function, "eval", None)
    if function is None:
        raise FunctionError(
            f"{call.function!r} is not a scalar function",
            expected="a callable, or an object with a method eval",
            got=type(functions(call.function)).__name__,
        )
    if inspect.iscoroutinefunction(function):
        raise UnsupportedError(
            f"{call.function!r} is async and cannot be called inside an expression",
            expected="a plain function",
            remedy="use the DataStream API's async operator, or make it synchronous",
        )
    if call.per == "batch":
        return _per_batch(call, function)
    return _per_record(call, function)


def _per_record(call: PythonCall, function: Callable[..., Any]) -> Callable[..., Column]:
    def run(args: Sequence[Vector], n: int) -> Column:
        lists = [_python_values(a, n) for a in args]
        try:
            out = list(map(function, *lists)) if lists else [function() for _ in range(n)]
        except PenstockError:
            raise
        except Exception as error:
            raise _failed(call, error) from error
        return _result(call, out, n)

    return run


def _per_batch(call: PythonCall, function: Callable[..., Any]) -> Callable[..., Column]:
    def run(args: Sequence[Vector], n: int) -> Column:
        arrays = [as_column(a, n).to_external_arrow() for a in args]
        try:
            out = function(*arrays)
        except PenstockError:
            raise
        except Exception as error:
            raise _failed(call, error) from error
        return _result(call, out, n)

    return run


def _python_values(vector: Vector, n: int) -> list[Any]:
    if isinstance(vector, Scalar):
        return as_column(vector, 1).to_pylist() * n
    return vector.storage_list() if isinstance(vector.type, _PLAIN) else vector.to_pylist()


def _result(call: PythonCall, out: Any, n: int) -> Column:
    want = external_arrow_type(call.type)
    try:
        if isinstance(call.type, t.RawType):
            column = Column.of(call.type, list(out))
        elif isinstance(out, pa.ChunkedArray):
            column = Column.from_arrow(call.type, out.cast(want))
        elif isinstance(out, pa.Array):
            column = Column.from_arrow(call.type, out if out.type == want else out.cast(want))
        elif isinstance(out, list):
            column = Column.of(call.type, out)
        else:
            column = Column.from_arrow(call.type, pa.array(out, want))
    except (pa.ArrowException, TypeError, ValueError, ArithmeticError) as error:
        raise FunctionError(
            f"{call.function!r} returned something that is no {call.type}",
            expected=f"{n} values of {call.type}",
            got=str(error),
            where=f"function {call.function}",
        ) from error
    if len(column) != n:
        raise FunctionError(
            f"{call.function!r} returned {len(column)} values for {n} rows",
            expected=f"{n} values",
            got=str(len(column)),
            where=f"function {call.function}",
        )
    return column


def _failed(call: PythonCall, error: Exception) -> FunctionError:
    # The first frame is ours; what the user wants to see begins below it.
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    text = "".join(traceback.format_exception(type(error), error, frames))
    return FunctionError(
        f"{call.function!r} raised {type(error).__name__}: {error}",
        where=f"function {call.function}",
        user_traceback=text,
    )
