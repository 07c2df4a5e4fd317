"""Functions of your own in SQL: ``@udf`` (scalar), ``@udtf`` (table), ``@udaf`` (aggregate).

::

    @udf(result_type="BIGINT")
    def plus(a, b): return a + b                          # per record: Python values, None = NULL

    @udf(result_type="DOUBLE", per="batch")
    def norm(x): return pc.divide(x, pc.max(x))           # per Arrow batch: arrays in, one array out

    @udtf(result_types=["STRING", "INT"])
    def words(line):
        for w in line.split(): yield w, len(w)

    @udaf(result_type="DOUBLE")
    class Mean:                                           # accumulator: anything that pickles
        def create_accumulator(self): return [0.0, 0]
        def accumulate(self, acc, x): acc[0] += x; acc[1] += 1
        def get_value(self, acc): return acc[0] / acc[1] if acc[1] else None

    @udf(result_type="STRING")
    async def country(ip): return (await client.get(url + ip)).text     # many rows at once

The decorated function stays what it is, so it can be called and tested as such. Types are
SQL's (``"DECIMAL(10, 2)"``, ``"ROW<a INT, b STRING>"``) or ``Types.…()``; where none is given, annotations
declare them. Without ``input_types`` a function takes whatever it is called with; with them,
SQL checks the number and casts as INSERT does.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from penstock.errors import SpecError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["AggregateFunction", "ScalarFunction", "TableFunction", "udaf", "udf", "udtf"]

Per = Literal["record", "batch"]
#: What is decorated stays what it is.
F = TypeVar("F")


class ScalarFunction:
    """Derive from it when there is something to open; ``eval(*args)`` gives the value."""

    def open(self, context: Any) -> None:
        """Once in every slot, before the first call. ``context.get_job_parameter(key)``."""

    def eval(self, *args: Any) -> Any:
        raise NotImplementedError


class TableFunction:
    """``eval(*args)`` returns or yields rows: tuples, or bare values of a one-column table."""

    def open(self, context: Any) -> None:
        """Once in every subtask, before the first call."""

    def close(self) -> None:
        """At the end, also after a failure."""

    def eval(self, *args: Any) -> Any:
        raise NotImplementedError


class AggregateFunction:
    """``accumulate`` and ``retract`` change the accumulator or return a new one. ``retract``
    is needed over an updating input, ``merge(acc, [others])`` for session and sliding windows.
    With ``per="batch"`` the arguments are Arrow arrays: all the rows of one key in a batch."""

    def create_accumulator(self) -> Any:
        raise NotImplementedError

    def accumulate(self, accumulator: Any, *args: Any) -> Any:
        raise NotImplementedError

    def get_value(self, accumulator: Any) -> Any:
        raise NotImplementedError


@overload
def udf(
    f: None = None,
    *,
    result_type: Any = None,
    input_types: Sequence[Any] | None = None,
    per: Per = "record",
    name: str | None = None,
    func_type: str | None = None,
    deterministic: bool = True,
) -> Callable[[F], F]: ...


@overload
def udf(
    f: F,
    *,
    result_type: Any = None,
    input_types: Sequence[Any] | None = None,
    per: Per = "record",
    name: str | None = None,
    func_type: str | None = None,
    deterministic: bool = True,
) -> F: ...


def udf(
    f: Any = None,
    *,
    result_type: Any = None,
    input_types: Sequence[Any] | None = None,
    per: Per = "record",
    name: str | None = None,
    func_type: str | None = None,
    deterministic: bool = True,
) -> Any:
    """A scalar function: a callable, or a ``ScalarFunction`` class or object."""
    return _declare("scalar", f, result_type, input_types, per, name, func_type, deterministic)


@overload
def udtf(
    f: None = None,
    *,
    result_types: Any = None,
    input_types: Sequence[Any] | None = None,
    per: Per = "record",
    name: str | None = None,
    func_type: str | None = None,
    deterministic: bool = True,
) -> Callable[[F], F]: ...


@overload
def udtf(
    f: F,
    *,
    result_types: Any = None,
    input_types: Sequence[Any] | None = None,
    per: Per = "record",
    name: str | None = None,
    func_type: str | None = None,
    deterministic: bool = True,
) -> F: ...


def udtf(
    f: Any = None,
    *,
    result_types: Any = None,
    input_types: Sequence[Any] | None = None,
    per: Per = "record",
    name: str | None = None,
    func_type: str | None = None,
    deterministic: bool = True,
) -> Any:
    """A table function. ``result_types``: of its columns (a list, one type, or a ROW type whose
    fields name them)."""
    return _declare("table", f, result_types, input_types, per, name, func_type, deterministic)


@overload
def udaf(
    f: None = None,
    *,
    result_type: Any = None,
    input_types: Sequence[Any] | None = None,
    accumulator_type: Any = None,
    per: Per = "record",
    name: str | None = None,
    func_type: str | None = None,
    deterministic: bool = True,
) -> Callable[[F], F]: ...


@overload
def udaf(
    f: F,
    *,
    result_type: Any = None,
    input_types: Sequence[Any] | None = None,
    accumulator_type: Any = None,
    per: Per = "record",
    name: str | None = None,
    func_type: str | None = None,
    deterministic: bool = True,
) -> F: ...


def udaf(
    f: Any = None,
    *,
    result_type: Any = None,
    input_types: Sequence[Any] | None = None,
    accumulator_type: Any = None,
    per: Per = "record",
    name: str | None = None,
    func_type: str | None = None,
    deterministic: bool = True,
) -> Any:
    """An aggregate function: an ``AggregateFunction`` class or object. ``accumulator_type`` is
    accepted for PyFlink's sake: an accumulator is any object that pickles."""
    return _declare("aggregate", f, result_type, input_types, per, name, func_type, deterministic)


_DECORATOR = {"scalar": "@udf", "table": "@udtf", "aggregate": "@udaf"}


def _declare(
    kind: str,
    f: Any,
    result: Any,
    arguments: Sequence[Any] | None,
    per: str,
    name: str | None,
    func_type: str | None,
    deterministic: bool,
) -> Any:
    what = _DECORATOR[kind]
    if per not in ("record", "batch"):
        raise SpecError(f"{what}: unknown 'per'", expected="'record' | 'batch'", got=repr(per))
    if func_type not in (None, "general"):
        raise UnsupportedError(
            f"{what}(func_type={func_type!r})",
            expected="per='record' or per='batch'",
            remedy="per='batch' gives Arrow arrays; .to_pandas() makes Series of them",
        )
    if not deterministic:
        raise UnsupportedError(
            f"{what}(deterministic=False)",
            expected="functions that give the same for the same arguments",
            remedy="let a source or a DataStream operator compute such values, as columns",
        )

    def decorate(target: Any) -> Any:
        called = _callee(target, kind, what)
        asynchronous = inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)
        if asynchronous and (kind == "aggregate" or (kind == "table" and per == "batch")):
            raise UnsupportedError(
                f"{what}: '{_name(target)}' is async",
                expected="a plain function" + ("" if kind == "aggregate" else ", or async per record"),
                where=_place(called),
                remedy="await in a scalar or table function below it, and aggregate what that gives"
                if kind == "aggregate"
                else "leave per='batch' out",
            )
        declared = {
            "kind": kind,
            "result": result if result is not None else _annotated(called, kind, what, target),
            "arguments": None if arguments is None else tuple(arguments),
            "per": per,
            "asynchronous": asynchronous,
        }
        if name is not None:
            declared["name"] = name
        try:
            target.penstock_function = declared
        except AttributeError:
            raise SpecError(
                f"{what} cannot mark {target!r}",
                expected="a Python function or class",
                got=type(target).__name__,
            ) from None
        return target

    return decorate if f is None else decorate(f)


def _callee(target: Any, kind: str, what: str) -> Callable[..., Any]:
    """What is called for a row."""
    method = "accumulate" if kind == "aggregate" else "eval"
    found: Callable[..., Any] | None = getattr(target, method, None)
    if found is None and callable(target) and not isinstance(target, type) and kind != "aggregate":
        found = target
    if found is None:
        raise SpecError(
            f"{what} on something that has no method '{method}'",
            expected="a class with create_accumulator, accumulate and get_value"
            if kind == "aggregate"
            else "a function, or a class with eval(…)",
            got=repr(target),
        )
    return found


def _annotated(called: Callable[..., Any], kind: str, what: str, target: Any) -> Any:
    """The type that annotations declare; SpecError when they declare none."""
    from penstock.api.typeinfo import annotated_type

    if kind == "table":
        found = annotated_type(called, "flat_map")
    else:
        found = annotated_type(
            getattr(target, "get_value", called) if kind == "aggregate" else called, "eval"
        )
    if found is None:
        option = "result_types" if kind == "table" else "result_type"
        raise SpecError(
            f"{what}: what '{_name(target)}' gives is not declared",
            expected=f"{option}=…, or an annotation such as '-> int'",
            got="neither",
            where=_place(called),
            remedy=f'write {what}({option}="BIGINT")',
        )
    return found


def _name(target: Any) -> str:
    return getattr(target, "__name__", type(target).__name__)


def _place(called: Any) -> str | None:
    code = getattr(inspect.unwrap(called), "__code__", None)
    return None if code is None else f"{code.co_filename}, line {code.co_firstlineno}"
