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

The decorated function is not changed, so tests can call it directly. Types are
SQL's (``"DECIMAL(10, 2)"``, ``"ROW<a INT, b STRING>"``) or ``Types.…()``; where none is given, annotations
declare them. Without ``input_types`` a function accepts any arguments; with them, SQL checks their number and
casts them as INSERT does.
"""

from __future__ import annotations

import abc
import inspect
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from penstock.errors import SpecError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["AggregateFunction", "ScalarFunction", "TableFunction", "udaf", "udf", "udtf"]

Per = Literal["record", "batch"]
#: A decorator returns the type that it was given.
F = TypeVar("F")


class _Determined:
    def is_deterministic(self) -> bool:
        """Whether the function gives the same for the same arguments. True, unless a subclass says otherwise."""
        return True


class ScalarFunction(_Determined, abc.ABC):
    """The base class of scalar functions that have something to open. ``eval(*args)`` returns the value."""

    def open(self, context: Any) -> None:
        """Called once in every subtask, before the first call; on Spark once in every process.

        ``context.get_job_parameter(key)`` reads the configuration; in a subtask it has all of ``RuntimeContext``.
        """

    def close(self) -> None:
        """Called once at the end."""

    @abc.abstractmethod
    def eval(self, *args: Any) -> Any:
        """The value for one row; ``args``: the arguments, None for NULL. With ``per="batch"`` Arrow arrays."""
        raise NotImplementedError


class TableFunction(_Determined):
    """The base class of table functions that have something to open. ``eval(*args)`` returns the rows."""

    def open(self, context: Any) -> None:
        """Called once in every subtask, before the first call; ``context`` as in ``ScalarFunction.open``."""

    def close(self) -> None:
        """Called once at the end, also after a failure."""

    def eval(self, *args: Any) -> Any:
        """The rows for one row of the input: returned or yielded tuples, or bare values of a one-column table.

        ``args``: the arguments, None for NULL.
        """
        raise NotImplementedError


class AggregateFunction(_Determined):
    """An aggregate function. ``accumulate`` and ``retract`` change the accumulator or return a new one.

    ``retract(accumulator, *args)`` is needed over an updating input, ``merge(accumulator, [others])`` for session
    and sliding windows. With ``per="batch"`` the arguments are Arrow arrays: all rows of one key in a batch.
    """

    def open(self, context: Any) -> None:
        """Called once in every subtask, before the first call; ``context`` as in ``ScalarFunction.open``."""

    def close(self) -> None:
        """Called once at the end."""

    def create_accumulator(self) -> Any:
        """The accumulator of no row: any object that pickles."""
        raise NotImplementedError

    def accumulate(self, accumulator: Any, *args: Any) -> Any:
        """Add one row to ``accumulator``; ``args``: the arguments, None for NULL. May return a new accumulator."""
        raise NotImplementedError

    def get_value(self, accumulator: Any) -> Any:
        """The result of ``accumulator``."""
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
    """Declare a scalar function.

    Args:
        f: A callable, or a ``ScalarFunction`` class or object. None: ``udf`` is used as a decorator with arguments.
        result_type: Type of the value, SQL's (``"DECIMAL(10, 2)"``) or ``Types.…()``. None: the annotation.
        input_types: Types of the arguments. None: the function accepts any arguments; otherwise SQL checks
            their number and casts them.
        per: ``record``, one call for each row; ``batch``, one call for each Arrow batch.
        name: Name of the function; None: that of the callable.
        func_type: ``general`` or None. PyFlink's ``pandas`` is refused: take ``per="batch"``.
        deterministic: Whether it gives the same for the same arguments. A function that does not is called for each place where it
            stands; over an updating input a row that is taken back may differ from the row that was given, as in Flink.

    Raises:
        SpecError: The result's type is not declared, ``per`` is unknown, or ``f`` is no function.
        UnsupportedError: ``func_type`` is something else.
    """
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
    """Declare a table function: it gives any number of rows for one row.

    Args:
        f: A callable, or a ``TableFunction`` class or object. None: ``udtf`` is used as a decorator with arguments.
        result_types: Types of the columns: a list, one type, or a ROW type whose fields name them. None: the
            annotation.
        input_types: As in ``udf``.
        per: As in ``udf``. By batch it returns a record batch and, for each of its rows, the number of the input
            row that it came from.
        name: As in ``udf``.
        func_type: As in ``udf``.
        deterministic: As in ``udf``.

    Raises:
        SpecError: As in ``udf``.
        UnsupportedError: As in ``udf``.
    """
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
    """Declare an aggregate function: it gives one value for many rows.

    Args:
        f: An ``AggregateFunction`` class or object. None: ``udaf`` is used as a decorator with arguments.
        result_type: As in ``udf``.
        input_types: As in ``udf``.
        accumulator_type: Accepted for PyFlink's sake and not used: an accumulator is any object that pickles.
        per: As in ``udf``. By batch ``accumulate`` gets Arrow arrays.
        name: As in ``udf``.
        func_type: As in ``udf``.
        deterministic: As in ``udf``.

    Raises:
        SpecError: As in ``udf``.
        UnsupportedError: As in ``udf``, and for an async function.
    """
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
            "deterministic": deterministic,
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
    """The method or function that is called for a row."""
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
